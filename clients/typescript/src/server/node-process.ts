/** What a server on Node does to its process, and reads of it. */

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { SetupError } from "../base/configuration.js";
import { writeToLog } from "../evaluate/example-log.js";
import { ProgramFailed } from "../generated/errors.js";
import { currentPlace } from "../wire/place.js";

/**
 * Convert an error for the caller of `entry`. The stack of a caller's mistake begins at the caller's line: the frames of
 * this package would not help.
 */
export function asSetupError(error: unknown, entry: (...given: never[]) => unknown): unknown {
  const failure = error instanceof ProgramFailed ? new SetupError(reasonOf(error)) : error;
  if (failure instanceof SetupError) Error.captureStackTrace(failure, entry);
  return failure;
}

/** Why there is no seed candidate; with the program's own frames if its function threw. */
function reasonOf({ message, details }: ProgramFailed): string {
  return details.log_tail === undefined ? message : `\`seedCandidate\` failed: ${details.log_tail}`;
}

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

/** Bytes that a pipe takes at once, without the head of a frame. */
const FRAME_BYTES = 4000;

let isCapturing = false;

/** Begin with that, once in a process; what is written appears there all the same. */
export function captureOutput(): void {
  if (isCapturing) return;
  isCapturing = true;
  for (const stream of [process.stdout, process.stderr]) {
    const write = stream.write.bind(stream) as (...given: unknown[]) => boolean;
    stream.write = ((chunk: unknown, ...rest: unknown[]) => {
      const request = currentPlace()?.request;
      if (typeof chunk !== "string" && !(chunk instanceof Uint8Array)) return write(chunk, ...rest);
      const bytes = Buffer.from(chunk as string, typeof rest[0] === "string" ? (rest[0] as BufferEncoding) : undefined);
      writeToLog(bytes.toString());
      return request === undefined ? write(chunk, ...rest) : write(framed(bytes, request), rest.at(-1));
    }) as typeof stream.write;
  }
}

/** Return what is written, in frames with the id of the request of the server that started this process. */
function framed(bytes: Buffer, request: number): Buffer {
  const frames: Buffer[] = [];
  for (let at = 0; at < bytes.length; at += FRAME_BYTES) {
    const part = bytes.subarray(at, at + FRAME_BYTES);
    frames.push(Buffer.from(`\0${request}:${part.length}\0`), part);
  }
  return Buffer.concat(frames);
}
