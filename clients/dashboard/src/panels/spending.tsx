/** What was spent on what. */

import type { SpendingSoFar } from "../generated/events";
import { count, money, spent } from "../parts/format";
import { Scrolled } from "../parts/scrolled";
import { Term } from "../parts/term";
import { Inline } from "../parts/text";

export function Spending({ spending }: { spending: SpendingSoFar }) {
  if (spending.kinds.length === 0) return null;
  return (
    <section class="panel wide">
      <h2>What was spent on what</h2>
      <Scrolled label="Spending by kind">
        <table>
          <thead>
            <tr>
              <th scope="col">kind</th>
              {["calls", "examples", "input tokens", "output tokens", "cost", "unpriced", "seconds"].map((name) => (
                <th key={name} scope="col" class="number">
                  {name === "unpriced" ? <Term of={name} /> : name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {spending.kinds.map((kind) => (
              <tr key={kind.kind}>
                <th scope="row">
                  <Inline text={kind.kind} />
                </th>
                <td class="number">{count(kind.calls)}</td>
                <td class="number">{count(kind.examples)}</td>
                <td class="number">{count(kind.input_tokens)}</td>
                <td class="number">{count(kind.output_tokens)}</td>
                <td class="number">{spent(kind.cost_usd, kind.unpriced, kind.unreported)}</td>
                <td class="number">{count(kind.unpriced)}</td>
                <td class="number">{count(Math.round(kind.seconds))}</td>
              </tr>
            ))}
            {Object.entries(spending.models).map(([model, tally]) => (
              <tr key={model}>
                <th scope="row">
                  through the gateway: <Inline text={model} />
                </th>
                <td class="number">{count(tally.calls)}</td>
                <td class="number">{tally.failed > 0 ? `${count(tally.failed)} failed` : ""}</td>
                <td class="number">{count(tally.input_tokens)}</td>
                <td class="number">{count(tally.output_tokens)}</td>
                <td class="number">{money(tally.cost_usd)}</td>
                <td class="number">{count(tally.unpriced)}</td>
                <td />
              </tr>
            ))}
          </tbody>
        </table>
      </Scrolled>
    </section>
  );
}
