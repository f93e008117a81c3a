/** Messages about a program's mistakes, for the log of the server: each at most once. */

/** Logs what the operator needs and clients must not see. */
export type Log = (message: string, error?: unknown) => void;

/** A program may make up names: beyond this many, further ones are not reported. */
const MAX_NOTICES = 1000;

export class Notices {
  readonly #given = new Set<string>();

  constructor(private readonly log: Log) {}

  /** Log a message unless one with this key was logged before. */
  once(key: string, message: () => string): void {
    if (this.#given.has(key) || this.#given.size >= MAX_NOTICES) return;
    this.#given.add(key);
    this.log(message());
  }
}
