/** What users asked of the run, and the outcome. */

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
            <Inline text={steer.text} length={200} />
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
