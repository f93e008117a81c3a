/** What is worth knowing of a run that continued. */

import { Inline } from "../parts/text";
import type { View } from "../state/view";

export function Warnings({ view }: { view: View }) {
  if (view.warnings.length === 0) return null;
  return (
    <section class="panel">
      <h2>Warnings</h2>
      <ul>
        {view.warnings.map((warning) => (
          <li key={warning.message}>
            <Inline text={warning.message} length={600} />
          </li>
        ))}
      </ul>
    </section>
  );
}
