/** The run: its program, rows, places, commands and settings. */

import { Facts } from "../parts/facts";
import { count, time } from "../parts/format";
import { Terms } from "../parts/term";
import type { View } from "../state/view";

export function About({ view }: { view: View }) {
  const { run } = view.latest;
  if (run === undefined) return null;
  const rows = Object.entries(run.splits).map(([split, size]) => `${split} ${count(size)}`);
  const program = [run.program, run.program_version && `version ${run.program_version}`].filter(Boolean).join(", ");
  return (
    <section class="panel">
      <h2>The run</h2>
      <Facts
        facts={[
          ["id", run.run_id],
          ["program", program || "unnamed"],
          ["components", run.components.join(", ")],
          ["rows", rows.join(", ")],
          ["reflection model", run.reflection_model ?? "none: the program proposes"],
          ["begun", time(run.started ?? run.created)],
          ["ended", run.completed && time(run.completed)],
          ["driver", run.driver],
          ["fork of", run.parent],
          ["store", run.store || null],
          ["output folder", run.output],
        ]}
      />
      <Terms />
      <details>
        <summary>Settings</summary>
        <Facts facts={Object.entries(run.settings).map(([name, value]) => [name, JSON.stringify(value)])} />
      </details>
    </section>
  );
}
