/** Keep what is written to the standard output and error with the examples that run. */

import { writeToLog } from "./example-log.js";

let isCapturing = false;

/** Begin with that, once in a process; what is written appears there all the same. */
export function captureOutput(): void {
  if (isCapturing) return;
  isCapturing = true;
  for (const stream of [process.stdout, process.stderr]) {
    const write = stream.write.bind(stream) as (...given: unknown[]) => boolean;
    stream.write = ((chunk: unknown, encoding?: unknown, ...rest: unknown[]) => {
      if (typeof chunk === "string") writeToLog(chunk);
      else if (chunk instanceof Uint8Array) writeToLog(Buffer.from(chunk).toString());
      return write(chunk, encoding, ...rest);
    }) as typeof stream.write;
  }
}
