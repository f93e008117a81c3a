/** Keep what is written to the standard output and error with the examples that run. */

import { currentPlace } from "../wire/place.js";
import { writeToLog } from "./example-log.js";

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
