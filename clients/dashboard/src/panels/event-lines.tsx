/** Warnings, and what else of a run the terminal keeps as lines. */

import { counted } from "../parts/format";
import { Inline } from "../parts/text";
import type { View } from "../state/view";

export function EventLines({ view: { lines, latest } }: { view: View }) {
  const omitted = latest.lines?.omitted ?? 0;
  if (lines.length === 0) return null;
  return (
    <section class="panel">
      <h2>Warnings and events</h2>
      <ul>
        {lines.map(({ lead, text, tone }, place) => (
          <li key={place}>
            {lead && <Inline as="strong" class={tone} text={lead} />}{" "}
            <Inline as="span" class={lead ? "" : tone} text={text} length={600} />
          </li>
        ))}
      </ul>
      {omitted > 0 && <p class="quiet">{counted(omitted, "earlier line")} left out.</p>}
    </section>
  );
}
