/** The flags of the commands that serve a program. */

import { parseArgs } from "node:util";
import type { ServeOptions } from "../server/serve.js";

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
