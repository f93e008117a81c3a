/** The run's data inside an exported page, which asks no server for anything. */

import type { PageEvent } from "./generated/events";

export interface Embedded {
  readonly events: readonly PageEvent[];
  /**
   * Answers of the server's interface, by the path and query that ask for them, such as
   * `/api/runs/ID/cell?candidate=3&row=7`; whole texts without `from`.
   */
  readonly answers: Readonly<Record<string, unknown>>;
  /** What there was no room for, in words. */
  readonly left_out: readonly string[];
  /** The command that shows the run from its store. */
  readonly command: string;
}

let held: Embedded | null | undefined;

/** Return the data in the page; null if a server serves it. */
export function embedded(): Embedded | null {
  if (held === undefined) {
    const text = document.getElementById("run-data")?.textContent;
    held = text ? (JSON.parse(text) as Embedded) : null;
  }
  return held;
}
