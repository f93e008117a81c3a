/** What users asked of the run, and the outcome. */

import type { Steer } from "../generated/events";
import { time } from "../parts/format";
import { Inline } from "../parts/text";
import type { View } from "../state/view";

export function Steers({ view }: { view: View }) {
  if (view.steers.length === 0) return null;
  return (
    <section class="panel">
      <h2>What users asked of the run</h2>
      <ul>
        {view.steers.map((steer) => (
          <li key={steer.key}>
            <Inline as="strong" text={steer.action} /> <Inline text={detailOf(steer)} length={120} />
            {steer.by && (
              <>
                {" "}
                by <Inline text={steer.by} />
              </>
            )}
            , <span class="quiet">{time(steer.requested)}</span>:{" "}
            {steer.outcome === null ? "waits for its turn" : <Inline text={steer.outcome} length={300} />}
          </li>
        ))}
      </ul>
    </section>
  );
}

/** What was posted besides the action's name. */
function detailOf({ detail }: Steer): string {
  const shown = Object.entries(detail).filter(([name, value]) => name !== "kind" && value !== null);
  return shown
    .map(([name, value]) => `${name} ${typeof value === "string" ? value : JSON.stringify(value)}`)
    .join(", ");
}
