/** Messages about a program's mistakes, for the log of the server: each at most once. */

/** Logs what the operator needs and clients must not see. */
export type Log = (message: string, error?: unknown) => void;

/** A program may make up names: beyond this many, further ones are not reported. */
const MAX_NOTICES = 1000;

export class Notices {
  readonly #given = new Set<string>();

  constructor(private readonly log: Log) {}

  once(message: string): void {
    if (this.#given.has(message) || this.#given.size >= MAX_NOTICES) return;
    this.#given.add(message);
    this.log(message);
  }
}
