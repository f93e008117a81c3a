/** Serve the program that a file of Node exports. */

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { SetupError } from "../base/configuration.js";
import { sha256 } from "../base/digest.js";
import type { Program } from "../program/program.js";
import { serve } from "../server/serve.js";
import { serveStdio } from "../server/stdio.js";
import { SERVE_USAGE, serveOptions } from "./serve-options.js";

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
