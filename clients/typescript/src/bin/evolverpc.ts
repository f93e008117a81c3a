#!/usr/bin/env node
/** `evolverpc WORDS` runs `gepa-client WORDS` with the optimizer that `optimize` uses: `npx evolverpc show last`. */

import { spawn } from "node:child_process";
import { constants } from "node:os";
import { SetupError } from "../base/configuration.js";
import { optimizerCommand } from "../optimize/optimizer-setup.js";

try {
  const command = await optimizerCommand();
  const child = spawn(command, process.argv.slice(2), {
    env: { ...process.env, GEPA_CLIENT: command }, // the commands that it prints have this name
    stdio: "inherit",
  });
  process.on("SIGINT", () => {}); // the terminal sends it to both; the optimizer decides when to end
  process.on("SIGTERM", () => child.kill("SIGTERM"));
  child.on("error", (error) => {
    console.error(`evolverpc: the optimizer ${command} cannot be started: ${error.message}`);
    process.exitCode = 2;
  });
  child.on("exit", (status, signal) => {
    process.exitCode = status ?? 128 + (signal === null ? 0 : constants.signals[signal]);
  });
} catch (error) {
  if (!(error instanceof SetupError)) throw error;
  console.error(`evolverpc: ${error.message}`);
  process.exitCode = 2;
}
