/** What a program writes while an example runs, kept with that example. */

import type { ExampleResult } from "../generated/types.js";
import { currentPlace, inPlace, onlyPlace } from "../wire/place.js";

/** Characters kept of what one example writes: the first and the last half. */
const MAX_LOG = 16 * 1024;
const HALF = MAX_LOG / 2;

/** The first and the last of a text, with the number of characters that are left out between. */
export class ExampleLog {
  #first = "";
  #last = "";
  #length = 0;

  write(text: string): void {
    this.#length += text.length;
    const room = HALF - this.#first.length;
    this.#first += text.slice(0, room);
    this.#last += text.slice(room).slice(-HALF);
    if (this.#last.length > 2 * HALF) this.#last = this.#last.slice(-HALF);
  }

  get text(): string {
    if (this.#length <= MAX_LOG) return (this.#first + this.#last).toWellFormed();
    const first = this.#first.replace(/[\ud800-\udbff]$/, "");
    const last = this.#last.slice(-HALF).replace(/^[\udc00-\udfff]/, "");
    const leftOut = (this.#length - first.length - last.length).toLocaleString("en-US");
    return `${first}\n… ${leftOut} characters left out …\n${last}`.toWellFormed();
  }
}

/** Keep what is written from here: with the example that runs here, else with the only one that runs. */
export function writeToLog(text: string): void {
  (currentPlace()?.log ?? onlyPlace()?.log)?.write(text);
}

/** Return what the work returns, and what is written meanwhile. */
export async function logged<Value>(work: () => Promise<Value>): Promise<[Value, string]> {
  const log = new ExampleLog();
  const value = await inPlace({ log }, work);
  return [value, log.text];
}

/** The same result with what the program wrote: as its `log`, or that of its `error`. */
export function withLog(result: ExampleResult, log: string): ExampleResult {
  if (log === "") return result;
  const { log: _own, ...rest } = result;
  return rest.error ? { ...rest, error: { ...rest.error, log } } : { ...rest, log };
}

/** What the program wrote during the example. */
export function writtenBy({ log, error }: ExampleResult): string {
  return log ?? error?.log ?? "";
}
