/** The endpoints of the run and their state. */

import type { Now } from "../generated/events";
import { Scrolled } from "../parts/scrolled";
import { Inline } from "../parts/text";

export function Endpoints({ now }: { now: Now }) {
  return (
    <section class="panel">
      <h2>Endpoints</h2>
      <Scrolled label="Endpoints">
        <table>
          <thead>
            <tr>
              <th scope="col">endpoint</th>
              <th scope="col">state</th>
              <th scope="col" class="number">
                in flight
              </th>
              <th scope="col">detail</th>
            </tr>
          </thead>
          <tbody>
            {now.endpoints.map((endpoint) => (
              <tr key={endpoint.name}>
                <th scope="row">
                  <Inline text={endpoint.name} length={60} />
                </th>
                <td class={endpoint.state === "up" ? "good" : "warn"}>
                  <Inline text={endpoint.state} />
                </td>
                <td class="number">
                  {endpoint.in_flight ?? "?"} of {endpoint.slots ?? "?"}
                </td>
                <td>{endpoint.detail && <Inline text={endpoint.detail} length={200} />}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scrolled>
    </section>
  );
}
