/** What was spent on what. */

import type { SpendingSoFar } from "../generated/events";
import { count, money, spent } from "../parts/format";
import { Table } from "../parts/table";
import { Term } from "../parts/term";

export function Spending({ spending }: { spending: SpendingSoFar }) {
  if (spending.kinds.length === 0) return null;
  const kinds = spending.kinds.map((each) => ({
    ...each,
    name: each.kind,
    examples: count(each.examples),
    cost: spent(each.cost_usd, each.unpriced, each.unreported),
    seconds: count(Math.round(each.seconds)),
  }));
  const models = Object.entries(spending.models).map(([model, tally]) => ({
    ...tally,
    name: `through the gateway: ${model}`,
    examples: tally.failed > 0 ? `${count(tally.failed)} failed` : "",
    cost: money(tally.cost_usd),
    seconds: "",
  }));
  return (
    <section class="panel wide">
      <h2>What was spent on what</h2>
      <Table
        label="Spending by kind"
        items={[...kinds, ...models]}
        columns={[
          ["kind", ({ name }) => name],
          ["calls", ({ calls }) => count(calls), "number"],
          ["examples", ({ examples }) => examples, "number"],
          ["input tokens", (each) => count(each.input_tokens), "number"],
          ["output tokens", (each) => count(each.output_tokens), "number"],
          ["cost", ({ cost }) => cost, "number"],
          [<Term key="unpriced" of="unpriced" />, ({ unpriced }) => count(unpriced), "number"],
          ["seconds", ({ seconds }) => seconds, "number"],
        ]}
      />
    </section>
  );
}
