/** The endpoints of the run and their state. */

import type { Now } from "../generated/events";
import { Table } from "../parts/table";
import { Inline } from "../parts/text";

export function Endpoints({ now }: { now: Now }) {
  return (
    <section class="panel">
      <h2>Endpoints</h2>
      <Table
        label="Endpoints"
        items={now.endpoints}
        columns={[
          ["endpoint", ({ name }) => name],
          ["state", ({ state }) => <Inline as="span" class={state === "up" ? "good" : "warn"} text={state} />],
          ["in flight", (each) => `${each.in_flight ?? "?"} of ${each.slots ?? "?"}`, "number"],
          ["detail", ({ detail }) => detail],
        ]}
      />
    </section>
  );
}
