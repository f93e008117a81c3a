/** The frame of every view: the run and its state, the views, the place in the journal. */

import type { Embedded } from "./embedded";

export function App({ data }: { data: Embedded | null }) {
  return <main>{data === null ? "Loading the run." : "The run."}</main>;
}
