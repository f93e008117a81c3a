#!/usr/bin/env node
/** `evolverpc-conformance [--stdio]` serves the conformance program over HTTP, or over stdio. */

import { parseArgs } from "node:util";
import { SetupError } from "../base/configuration.js";
import { conformanceProgram } from "../program/conformance.js";
import { type ServeOptions, serve } from "../server/serve.js";
import { serveStdio } from "../server/stdio.js";

const USAGE = `evolverpc-conformance [--stdio] [--host ADDRESS] [--port N] [--token-file FILE] [--json]
  [--concurrency N] [--max-queue N] [--example-timeout-s SECONDS] [--drain-s SECONDS] [-h|--help]`;

const OPTIONS = {
  stdio: { type: "boolean" },
  host: { type: "string" },
  port: { type: "string" },
  "token-file": { type: "string" },
  "example-timeout-s": { type: "string" },
  concurrency: { type: "string" },
  "max-queue": { type: "string" },
  "drain-s": { type: "string" },
  json: { type: "boolean" },
  help: { type: "boolean", short: "h" },
} as const;

/** The options that were given. */
function chosen(): ServeOptions & { stdio?: boolean; help?: boolean } {
  const { values } = parseArgs({ options: OPTIONS });
  const named = Object.entries(values).map(([name, value]) => {
    const key = name.replace(/-./g, (letter) => letter.charAt(1).toUpperCase());
    return [key, ["host", "tokenFile"].includes(key) || typeof value === "boolean" ? value : Number(value)];
  });
  return Object.fromEntries(named);
}

try {
  const { stdio, help, ...options } = chosen();
  if (help) console.log(USAGE);
  else if (stdio) await serveStdio(conformanceProgram, options);
  else await serve(conformanceProgram, options);
} catch (error) {
  if (!(error instanceof SetupError || (error instanceof TypeError && "code" in error))) throw error;
  console.error(`evolverpc-conformance: ${error.message}\n${USAGE}`);
  process.exit(2);
}
