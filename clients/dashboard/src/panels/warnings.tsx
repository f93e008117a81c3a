/** Warnings, and the iterations that failed. */

import { count, counted } from "../parts/format";
import { Block, Inline } from "../parts/text";
import type { View } from "../state/view";

/** Failed iterations that are listed, the last ones. */
const LISTED = 20;

export function Warnings({ view: { failedSteps, latest } }: { view: View }) {
  const warnings = latest.run?.warnings ?? [];
  if (warnings.length + failedSteps.length === 0) return null;
  return (
    <section class="panel">
      <h2>Warnings and failed iterations</h2>
      <ul>
        {warnings.map((warning) => (
          <li key={warning}>
            <strong class="warn">warning:</strong> <Inline text={warning} length={600} />
          </li>
        ))}
      </ul>
      {failedSteps.slice(-LISTED).map(({ iteration, step, message, details }) => (
        <details key={iteration}>
          <summary>
            <strong class="bad">
              iteration {count(iteration)}: <Inline text={step} /> failed:
            </strong>{" "}
            <Inline text={message} length={600} />
          </summary>
          <Block text={details || message} label={`Iteration ${iteration}`} />
        </details>
      ))}
      {failedSteps.length > LISTED && (
        <p class="quiet">{counted(failedSteps.length - LISTED, "earlier one")} left out.</p>
      )}
    </section>
  );
}
