/** A digest of the program's file: detects a change between two starts of a program without a version. */

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";

/** The SHA-256 of the file that this process was started with; undefined if it cannot be read. */
export function digestOfScript(): string | undefined {
  const script = process.argv[1];
  if (script === undefined) return undefined;
  try {
    return sha256(readFileSync(script));
  } catch {
    return undefined; // typed at a prompt, packed into an executable, or not readable
  }
}

/** The SHA-256 of a text or of bytes, in hexadecimal. */
export function sha256(content: string | Uint8Array): string {
  return createHash("sha256").update(content).digest("hex");
}
