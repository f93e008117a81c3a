/** What the run has used of its budget, and when it ends at this rate. */

import { Facts } from "../parts/facts";
import { count, duration, money } from "../parts/format";
import { Term } from "../parts/term";
import type { View } from "../state/view";

export function Budget({ view }: { view: View }) {
  const { run, now, spending } = view.latest;
  if (run === undefined) return null;
  const share = run.budget ? Math.min(1, view.metricCalls / run.budget) : null;
  const left = run.driven ? now?.seconds_left : null;
  const cost = now?.cost_at_end_usd == null ? "" : `, at a cost of ${money(now.cost_at_end_usd)}`;
  return (
    <section class="panel">
      <h2>Budget</h2>
      <p>
        {count(view.metricCalls)} <Term of="metric calls" />
        {run.budget !== null && ` of ${count(run.budget)} (${Math.round((share ?? 0) * 100)} %)`}
      </p>
      {share !== null && <progress value={share} aria-hidden="true" />}
      <Facts
        facts={[
          ["cost", spending?.cost],
          ["active time", duration(now?.active_seconds)],
          ["forecast", left != null && `at this rate max_metric_calls ends the run in about ${duration(left)}${cost}`],
        ]}
      />
    </section>
  );
}
