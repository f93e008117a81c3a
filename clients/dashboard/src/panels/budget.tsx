/** What the run has used of its budget, and when it ends at this rate. */

import { Fact } from "../parts/fact";
import { count, duration, money, spent } from "../parts/format";
import { Term } from "../parts/term";
import { Inline } from "../parts/text";
import { stallOf } from "../state/stall";
import type { View } from "../state/view";

export function Budget({ view }: { view: View }) {
  const { run, now, spending } = view.latest;
  if (run === undefined) return null;
  const share = run.budget ? Math.min(1, view.metricCalls / run.budget) : null;
  const forecast = run.driven && stallOf(view) === null ? now?.forecast : null;
  return (
    <section class="panel">
      <h2>Budget</h2>
      <p>
        {count(view.metricCalls)} <Term of="metric calls" />
        {run.budget !== null && ` of ${count(run.budget)} (${Math.round((share ?? 0) * 100)} %)`}
      </p>
      {share !== null && (
        <div class="bar" aria-hidden="true">
          <i style={{ width: `${share * 100}%` }} />
        </div>
      )}
      <dl class="facts">
        <Fact name="cost">
          {spent(spending?.cost_usd ?? now?.spent_usd, spending?.unpriced ?? 0, spending?.unreported ?? 0)}
        </Fact>
        <Fact name="active time">{duration(now?.active_seconds)}</Fact>
        {forecast && (
          <Fact name="forecast">
            at this rate <Inline text={forecast.limit} /> ends the run in about {duration(forecast.seconds_left)}
            {forecast.cost_usd !== null && `, at a cost of ${money(forecast.cost_usd)}`}
          </Fact>
        )}
      </dl>
    </section>
  );
}
