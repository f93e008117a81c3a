/** The events that the run recorded, the latest first, in the server's words. */

import { useState } from "preact/hooks";
import type { EventLine } from "../generated/answers";
import { useList } from "../loading";
import { count } from "../parts/format";
import { List } from "../parts/shown";
import { Table } from "../parts/table";
import { Term } from "../parts/term";
import { callsBy } from "../state/progress";
import { LIVE, type View } from "../state/view";

const EVERY_MS = 5_000;

export function Events({ view, api }: { view: View; api: string }) {
  const [opened, setOpened] = useState(false);
  const [words, setWords] = useState("");
  const query = new URLSearchParams({ ...(words && { words }), ...(view.at !== LIVE && { until: String(view.at) }) });
  const path = `${api}/history${query.size > 0 ? `?${query}` : ""}`;
  const list = useList<EventLine>(opened ? path : null, view.latest.run?.driven ? EVERY_MS : 0);
  return (
    <details class="panel wide" onToggle={(event) => setOpened(event.currentTarget.open)}>
      <summary>Events, the latest first</summary>
      <p class="row tools">
        <label>
          With the words
          <input type="search" value={words} onChange={(event) => setWords(event.currentTarget.value.trim())} />
        </label>
      </p>
      <List list={list} empty={words === "" ? "No event yet." : "None of the events that were read has these words."}>
        {(lines) => (
          <Table
            label="Events"
            tall
            items={lines}
            columns={[
              ["event", ({ kind }) => kind],
              [
                <Term key="calls" of="metric calls" />,
                ({ at }) => count(callsBy(view, at) === null ? null : Math.round(callsBy(view, at) as number)),
                "number",
              ],
              ["what happened", ({ text }) => text],
            ]}
          />
        )}
      </List>
    </details>
  );
}
