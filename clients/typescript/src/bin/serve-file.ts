/** Serve the program that a file of Node exports, and the flags of the commands that serve a program. */

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { SetupError } from "../base/configuration.js";
import type { Program } from "../program/program.js";
import { sha256 } from "../server/node-process.js";
import { type ServeOptions, serve } from "../server/serve.js";
import { serveStdio } from "../server/stdio.js";

export const SERVE_USAGE = `[--host ADDRESS] [--port N] [--token-file FILE] [--json]
  [--concurrency N] [--max-queue N] [--example-timeout-s SECONDS] [--drain-s SECONDS] [-h|--help]`;

const OPTIONS = {
  host: { type: "string" },
  port: { type: "string" },
  "token-file": { type: "string" },
  "example-timeout-s": { type: "string" },
  concurrency: { type: "string" },
  "max-queue": { type: "string" },
  "drain-s": { type: "string" },
  json: { type: "boolean" },
  stdio: { type: "boolean" },
  help: { type: "boolean", short: "h" },
} as const;

const USAGE = `evolverpc serve FILE [--stdio] ${SERVE_USAGE}`;

/** Serve the file that `words` name, as their flags state, until a signal. Throws `SetupError` if that cannot be done. */
export async function serveFile(words: string[]): Promise<void> {
  const { options, program: file, stdio, help } = serveOptions(words);
  if (help || file === undefined) {
    console.log(USAGE);
    return;
  }
  let content: Buffer;
  try {
    content = readFileSync(file);
  } catch (error) {
    throw new SetupError(`${file} cannot be read: ${(error as Error).message}`);
  }
  const exported = await imported(file);
  const { default: byDefault } = exported as { default?: Record<string, unknown> };
  const program = exported.program ?? byDefault?.program ?? byDefault; // a CommonJS module is its default export
  if (program === undefined) {
    throw new SetupError(`${file} exports no program: export it as \`program\`, or by default; or run the file itself`);
  }
  const given = { digest: sha256(content), ...options };
  if (stdio) await serveStdio(program as Program, given);
  else await serve(program as Program, given);
}

async function imported(file: string): Promise<Record<string, unknown>> {
  const url = pathToFileURL(resolve(file)).href;
  if (/\.[mc]?ts$/.test(file)) await registerTsx(file, url);
  return import(url);
}

async function registerTsx(file: string, url: string): Promise<void> {
  let loader: string;
  try {
    loader = createRequire(url).resolve("tsx");
  } catch {
    throw new SetupError(`${file} is TypeScript, and tsx is not installed beside it: npm install --save-dev tsx`);
  }
  await import(pathToFileURL(loader).href);
}

/** Read the flags, and the one argument that belongs to none. Throws a `TypeError` with a `code` for an unknown flag. */
export function serveOptions(words: string[]): {
  options: ServeOptions;
  program: string | undefined;
  stdio: boolean;
  help: boolean;
} {
  const { values, positionals } = parseArgs({ args: words, options: OPTIONS, allowPositionals: true });
  const { stdio = false, help = false, ...given } = values;
  const named = Object.entries(given).map(([name, value]) => {
    const key = name.replace(/-./g, (letter) => letter.charAt(1).toUpperCase());
    return [key, ["host", "tokenFile"].includes(key) || typeof value === "boolean" ? value : Number(value)];
  });
  return { options: Object.fromEntries(named), program: positionals[0], stdio, help };
}
