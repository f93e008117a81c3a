#!/usr/bin/env node
/**
 * `evolverpc serve FILE` serves a program of Node; `evolverpc WORDS` runs the Python package's `evolverpc WORDS`, with
 * the optimizer that `optimize` uses: `npx evolverpc show last`.
 */

import { spawn } from "node:child_process";
import { constants } from "node:os";
import { fileURLToPath } from "node:url";
import { SetupError } from "../base/configuration.js";
import { PACKAGE_VERSION } from "../base/version.js";
import { optimizerCommand } from "../optimize/optimizer-setup.js";
import { serveFile } from "./serve-file.js";

const words = process.argv.slice(2);

try {
  if (words[0] === "--version") {
    console.log(`evolverpc ${PACKAGE_VERSION} (npm package in ${fileURLToPath(new URL("../..", import.meta.url))})`);
  } else if (words[0] === "serve" && /\.[mc]?[jt]s$/.test(words[1] ?? "")) {
    await serveFile(words.slice(1));
  } else {
    await runOptimizer();
  }
} catch (error) {
  if (!(error instanceof SetupError || (error instanceof TypeError && "code" in error))) throw error;
  console.error(`evolverpc: ${error.message}`);
  process.exit(2);
}

async function runOptimizer(): Promise<void> {
  const command = await optimizerCommand();
  const child = spawn(command, words, {
    env: { ...process.env, EVOLVERPC_COMMAND: "npx evolverpc" }, // by which it prints commands
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
}
