/** By which a program that states no version is known to have changed between two starts. */

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";

/** The options with a digest: the one given, else the SHA-256 of the file this process was started with. */
export function withDigest<Options extends { digest?: string }>(options: Options): Options {
  if (options.digest !== undefined) return options;
  const digest = digestOfScript();
  return digest === undefined ? options : { ...options, digest };
}

function digestOfScript(): string | undefined {
  const script = process.argv[1];
  if (script === undefined) return undefined;
  try {
    return createHash("sha256").update(readFileSync(script)).digest("hex");
  } catch {
    return undefined; // typed at a prompt, packed into an executable, or not ours to read
  }
}
