/** What to do about a run that failed or was paused although its program failed on examples: first the program. */

import { Commands } from "../parts/commands";
import { count, score } from "../parts/format";
import { Inline } from "../parts/text";
import { sameRun } from "../state/command";
import { failedAt, failedRows, failureScoreOf } from "../state/failed-rows";
import { firstFailure } from "../state/failing";
import type { View } from "../state/view";

export function NextStep({ view }: { view: View }) {
  const { failures, run } = view.latest;
  const first = firstFailure(view);
  if (run === undefined || failures === undefined || first === undefined) return null;
  const place = failedAt(first.traceback ?? "");
  const seedFailed = seedFails(view);
  const fork = failures.first === null ? undefined : sameRun("fork", run.commands, `--at ${failures.first}`);
  const resume = run.commands.filter(({ command }) => command.includes(" resume "));
  const others = run.commands.filter((command) => !resume.includes(command));
  return (
    <>
      <ol class="numbered">
        <li>
          Fix the program: {count(failures.failed)} of {count(failures.evaluated)} examples failed, first with{" "}
          <Inline as="strong" text={first.type} length={80} />: <Inline text={first.message} length={200} />
          {place !== null && (
            <>
              {" "}
              in{" "}
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
            Then either resume the run: the {count(failures.failed)} recorded failures count as{" "}
            {score(failureScoreOf(run))} also after the fix, and only examples without a result are evaluated.
            <Commands commands={resume.map(({ command }) => ({ command, what: "" }))} />
            {fork !== undefined && (
              <>
                Or score them again: this fork is a new run that begins with the {count(failures.first)} entries
                recorded before the first failure. It prints the command that starts it, and gets no certificate. (A
                fork at the last entry has the recorded failures too.)
                <Commands commands={[{ command: fork, what: "" }]} />
              </>
            )}
          </li>
        )}
      </ol>
      <details>
        <summary>Other commands</summary>
        <Commands commands={seedFailed ? run.commands : others} />
      </details>
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
