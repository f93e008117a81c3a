/** What the run waits for and since when, and which servers do not answer. */

import { useEffect, useState } from "preact/hooks";
import { duration, time } from "../parts/format";
import { Inline } from "../parts/text";
import type { View } from "../state/view";
import { waitsOf } from "../state/waits";

const EVERY_MS = 5_000;

export function Waits({ view }: { view: View }) {
  const waits = waitsOf(view, useTime());
  if (waits.length === 0) return null;
  const away = view.latest.now?.endpoints.filter(({ state }) => state !== "up" && state !== "left") ?? [];
  return (
    <section class="panel wide waits" aria-label="What the run waits for">
      {waits.map(({ what, detail, since, seconds }) => (
        <div key={what}>
          <h2>
            Waits for <Inline text={what} length={200} />
            {seconds !== null && `, for ${duration(seconds)}`}
          </h2>
          <p>
            {since !== null && `Since ${time(since)}. `}
            {detail !== null && <Inline text={detail} length={600} />}
          </p>
        </div>
      ))}
      {waitsForServer(view) && (
        <p>Start a server again at its address: the run continues by itself, without a command.</p>
      )}
      {away.length > 0 && (
        <ul>
          {away.map(({ name, state, detail }) => (
            <li key={name}>
              <Inline as="code" text={name} length={100} /> is <Inline text={state} />
              {detail !== null && (
                <>
                  : <Inline text={detail} length={300} />
                </>
              )}
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

function waitsForServer({ latest: { now } }: View): boolean {
  return now !== undefined && !now.lost && now.waiting_for !== null;
}

/** The time in milliseconds since 1970, anew every few seconds: a wait grows although nothing arrives. */
function useTime(): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), EVERY_MS);
    return () => clearInterval(timer);
  }, []);
  return now;
}
