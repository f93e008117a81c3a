/** What to do about a run that failed or was paused because of its program, and with which command. */

import { Commands } from "../parts/header";
import { Inline } from "../parts/text";
import { failedAt, failedRows } from "../state/failed-rows";
import type { View } from "../state/view";

export function NextStep({ view }: { view: View }) {
  const { failures, run } = view.latest;
  const place = failedAt(failures?.groups.find(({ traceback }) => traceback)?.traceback ?? "");
  const seedFailed = seedFails(view);
  const resume = run?.commands.find(({ command }) => command.startsWith("gepa-client resume "));
  if (failures === undefined || failures.failed === 0) return null;
  return (
    <>
      <h3>What to do next</h3>
      <ol class="numbered">
        <li>
          Fix the program
          {place !== null && (
            <>
              : the first failure is in{" "}
              <code>
                <Inline text={place.file} length={200} />, line {place.line}
              </code>
            </>
          )}
          . Start its server again.
        </li>
        {seedFailed ? (
          <li>Start a new run: the seed failed, and its recorded failures stay in this one, also if it is resumed.</li>
        ) : (
          <li>
            Resume the run. Failures that are recorded keep their scores; only examples without a result are evaluated.
            {resume !== undefined && <Commands commands={[{ command: resume.command, what: "" }]} />}
          </li>
        )}
      </ol>
    </>
  );
}

/** Whether the program failed on every example, or with the seed on every validation row. */
function seedFails({ candidates, latest: { failures, run } }: View): boolean {
  const seed = candidates[0];
  if (failures !== undefined && failures.failed >= failures.evaluated) return true;
  const failed = seed && failedRows(seed.digest, seed.scores, failures, run);
  return failed?.every((each) => each === 1) ?? false;
}
