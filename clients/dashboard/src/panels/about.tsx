/** The run: its program, rows, places, commands and settings. */

import { Commands } from "../parts/commands";
import { Fact } from "../parts/fact";
import { count, time } from "../parts/format";
import { Term, Terms } from "../parts/term";
import { Inline } from "../parts/text";
import type { View } from "../state/view";

export function About({ view }: { view: View }) {
  const { run, sealed } = view.latest;
  if (run === undefined) return null;
  const rows = Object.entries(run.splits).map(([split, size]) => `${split} ${count(size)}`);
  return (
    <section class="panel">
      <h2>The run</h2>
      <dl class="facts">
        <Fact name="id">
          <Inline text={run.run_id} />
        </Fact>
        <Fact name="program">
          <Inline
            text={
              [run.program, run.program_version && `version ${run.program_version}`].filter(Boolean).join(", ") ||
              "unnamed"
            }
            length={200}
          />
        </Fact>
        <Fact name="components">
          <Inline text={run.components.join(", ")} length={400} />
        </Fact>
        <Fact name="rows">{rows.join(", ")}</Fact>
        {sealed !== undefined && (
          <>
            <dt>
              <Term of="sealed" /> test rows
            </dt>
            <dd>{count(sealed.rows)}</dd>
          </>
        )}
        <Fact name="reflection model">
          <Inline text={run.reflection_model ?? "none: the program proposes"} />
        </Fact>
        <Fact name="begun">{time(run.started ?? run.created)}</Fact>
        {run.completed && <Fact name="ended">{time(run.completed)}</Fact>}
        {run.driver && (
          <Fact name="driver">
            <Inline text={run.driver} length={200} />
          </Fact>
        )}
        {run.parent && (
          <Fact name="fork of">
            <Inline text={run.parent.run} />
            {run.parent.at !== null && ` at entry ${count(run.parent.at)}`}
          </Fact>
        )}
        {run.store !== "" && (
          <Fact name="store">
            <Inline text={run.store} length={300} />
          </Fact>
        )}
        {run.output && (
          <Fact name="output folder">
            <Inline text={run.output} length={300} />
          </Fact>
        )}
      </dl>
      {run.commands.length > 0 && <h3>Commands</h3>}
      <Commands commands={run.commands} />
      <Terms />
      <details>
        <summary>Settings</summary>
        <dl class="facts">
          {Object.entries(run.settings).map(([name, value]) => (
            <Fact key={name} name={name}>
              <Inline text={JSON.stringify(value)} length={300} />
            </Fact>
          ))}
        </dl>
      </details>
    </section>
  );
}
