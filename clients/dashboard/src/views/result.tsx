/** What the run came to and why: its story, the best text, each change with its reason and the rows that it moved. */

import { useState } from "preact/hooks";
import type { Explanation as Explained, ProposalShown, RowGroup, Change as Step } from "../generated/answers";
import type { StatedFact, Summary, SummaryTable } from "../generated/events";
import { useLoaded } from "../loading";
import { Change, Code } from "../panels/code";
import { Failures, failuresFirst } from "../panels/failures";
import { Next, Sentences } from "../panels/result";
import { Warnings } from "../panels/warnings";
import { Facts } from "../parts/facts";
import { candidateName, count, counted, score, sentence } from "../parts/format";
import { selectingRow } from "../parts/row-name";
import { Shown } from "../parts/shown";
import { Table, wordedColumns } from "../parts/table";
import { href } from "../route";
import { changedTexts, changeOf, changesTo } from "../state/changes";
import { lowestScore, placesLowest } from "../state/moved-rows";
import { LIVE, type View } from "../state/view";
import { Details, Row } from "./reflection";
import type { ViewProps } from "./run";
import { Texts } from "./text";

/** Changes of code that are listed. */
const REFUSED = 50;

export function ResultView({ view, api }: ViewProps) {
  const { run } = view.latest;
  const { summary } = view;
  const scored = view.candidates.length > 0;
  const until = view.at === LIVE ? "" : `?until=${view.at}`;
  const version = 2 * (view.best ?? 0) + (run?.driven ? 1 : 0);
  const answer = useLoaded<Explained>(scored ? `${api}/explanation${until}` : null, { version });
  return (
    <>
      <p class="about">
        {run?.driven
          ? "What the run has found so far, and why. It has not ended."
          : "What the run came to, and why: the best candidate, each change on the way to it, and its rows."}
      </p>
      {failuresFirst(view) && <Failures view={view} />}
      {summary !== undefined && <Story summary={summary} />}
      {scored && <Best view={view} api={api} />}
      <Shown loaded={answer}>{({ steps }) => <LastChange step={steps.at(-1)} view={view} api={api} />}</Shown>
      <Warnings view={view} />
      {answer.value !== null && <Explanation found={answer.value} view={view} api={api} />}
      <NotKept view={view} />
      {!failuresFirst(view) && <Failures view={view} />}
      {summary !== undefined && <Ending summary={summary} />}
    </>
  );
}

function Story({ summary }: { summary: Summary }) {
  return (
    <>
      <section class="panel">
        <h2>What happened</h2>
        <Sentences sentences={summary.story} />
        {summary.no_improvement.length > 0 && (
          <>
            <h3>Why it did not improve</h3>
            <Stated facts={summary.no_improvement} />
            <p>
              <a href={href("reflection")}>Each proposal, with its minibatch and the reason of its rejection</a>
            </p>
          </>
        )}
      </section>
      {summary.certificate.length > 0 && (
        <section class="panel">
          <h2>Is the gain real?</h2>
          <Stated facts={summary.certificate} />
        </section>
      )}
    </>
  );
}

function Stated({ facts }: { facts: readonly StatedFact[] }) {
  return <Facts facts={facts.map(({ label, text }) => [label, text])} length={5_000} />;
}

function Best({ view, api }: { view: View; api: string }) {
  const best = view.candidates.find(({ index }) => index === view.best);
  const seed = view.candidates[0];
  if (best === undefined) return null;
  const lost = placesLowest(best).length;
  const scored = best.scores.filter((each) => !Number.isNaN(each)).length;
  const hasNewCode = changesTo(view, best).length > 0;
  const hasNewText = changedTexts(best, seed).length > 0;
  return (
    <section class="panel">
      <h2>
        {hasNewCode ? `Best code${hasNewText ? " and text" : ""}` : "Best text"}
        {view.latest.run?.driven && " so far"}
      </h2>
      <p>
        {best.index === 0 ? (
          "It is the seed, unchanged."
        ) : (
          <>
            {sentence(candidateName(best.index))}.{" "}
            {hasNewText && (
              <>
                <ins>Underlined</ins>: words that the seed lacks; <del>struck through</del>: words of the seed that it
                lacks. <a href={href("text", { candidate: best.index, as: "origins" })}>Where each part is from</a>
              </>
            )}
          </>
        )}
      </p>
      {lost === scored ? (
        <p>
          It scores {score(lowestScore(best))} on each of its {counted(scored, "row")}.
        </p>
      ) : (
        <p>
          {counted(lost, "row")} {lost === 1 ? "has" : "have"} its lowest score, {score(lowestScore(best))}:{" "}
          <a href={href("rows", { lowest: best.index })}>see these rows</a>.
        </p>
      )}
      {hasNewCode && <Code view={view} candidate={best} />}
      <Texts api={api} candidate={best} other={best.index === 0 ? undefined : seed} />
      {view.latest.run !== undefined && <Next run={view.latest.run} />}
    </section>
  );
}

function Explanation({ found, view, api }: { found: Explained; view: View; api: string }) {
  return (
    <>
      {found.overall !== null && (
        <section class="panel">
          <h2>Rows it fixed and broke</h2>
          <p>
            Seed against best on the {selectingRow(view)}s: {found.overall.moved}.
          </p>
          <Groups groups={found.overall.groups} />
        </section>
      )}
      {found.steps.length > 0 && (
        <section class="panel">
          <h2>Changes, from the seed to the best</h2>
          <p class="quiet">
            Oldest first.
            {found.steps_omitted > 0 && ` ${counted(found.steps_omitted, "earlier change")} left out.`}
          </p>
          {found.steps.map((step, at) => (
            <details key={step.candidate}>
              <summary>
                {found.steps_omitted + at + 1}. {step.title}. {step.moved}.
              </summary>
              <OneStep step={step} view={view} api={api} />
            </details>
          ))}
        </section>
      )}
    </>
  );
}

/** What made the best candidate the best, without a fold to open. */
function LastChange({ step, ...props }: Omit<StepProps, "step"> & { step: Step | undefined }) {
  if (step === undefined) return null;
  return (
    <section class="panel">
      <h2>The last change: why candidate {step.candidate} is the best</h2>
      <p>
        {step.title}. {step.moved}.
      </p>
      <OneStep step={step} isOpen {...props} />
    </section>
  );
}

interface StepProps {
  readonly step: Step;
  readonly isOpen?: boolean;
  readonly view: View;
  readonly api: string;
}

function OneStep({ step, isOpen = false, view, api }: StepProps) {
  const candidate = view.candidates.find(({ index }) => index === step.candidate);
  const other = view.candidates.find(({ index }) => index === step.against);
  const mutation = candidate && changeOf(view, candidate);
  return (
    <>
      <p class="quiet">
        {step.origin}{" "}
        <a href={href("text", { candidate: step.candidate, with: step.against })}>The whole text, compared</a>
      </p>
      {candidate !== undefined && other !== undefined && <Texts api={api} candidate={candidate} other={other} />}
      {mutation !== undefined && <Change mutation={mutation} />}
      {step.proposal !== null && (
        <Reason path={`${api}/proposal?at=${step.proposal}`} byProgram={view.latest.run?.reflection_model === null} />
      )}
      <Groups groups={step.groups} isOpen={isOpen} />
    </>
  );
}

/** The minibatch that a proposal was made from, what reflection read, and its answer: loaded when it is opened. */
function Reason({ path, byProgram }: { path: string; byProgram: boolean }) {
  const [opened, setOpened] = useState(false);
  const answer = useLoaded<ProposalShown>(opened ? path : null);
  return (
    <details onToggle={(event) => setOpened(event.currentTarget.open)}>
      <summary>
        Why it was proposed: its minibatch, what {byProgram ? "the program read" : "reflection read, and the answer"}
      </summary>
      <Shown loaded={answer}>{(found) => <Details found={found} path={path} byProgram={byProgram} />}</Shown>
    </details>
  );
}

function Groups({ groups, isOpen = false }: { groups: readonly RowGroup[]; isOpen?: boolean }) {
  return (
    <>
      {groups.map((group) => (
        <details key={group.name} open={isOpen}>
          <summary>
            {group.name}: {counted(group.count, "row")}
            {group.count > group.rows.length && `, ${count(group.rows.length)} of them here`}
          </summary>
          {group.rows.map((row) => (
            <Row key={row.row} row={row} />
          ))}
        </details>
      ))}
    </>
  );
}

/** The changes of code that no candidate has, the last ones. */
function NotKept({ view }: { view: View }) {
  const kept = new Set(view.candidates.map(({ code }) => code?.commit));
  const refused = view.mutations.filter(({ commit }) => commit === null || !kept.has(commit));
  if (refused.length === 0) return null;
  return (
    <section class="panel">
      <h2>Changes of code that were tried and not kept</h2>
      {refused.length > REFUSED && (
        <p class="quiet">
          {counted(refused.length - REFUSED, "earlier one")} left out; <code>evolverpc branches</code> lists them.
        </p>
      )}
      {refused.slice(-REFUSED).map((mutation) => (
        <Change key={mutation.at} mutation={mutation} />
      ))}
    </section>
  );
}

function Ending({ summary }: { summary: Summary }) {
  return (
    <>
      {summary.tables.map((table) => (
        <Stage key={table.heading} table={table} />
      ))}
      <section class="panel">
        <h2>The run</h2>
        <Stated facts={summary.facts} />
      </section>
    </>
  );
}

export function Stage({ table: { heading, columns, rows } }: { table: SummaryTable }) {
  return (
    <section class="panel wide">
      <h2>{heading}</h2>
      <Table label={heading} items={rows} columns={wordedColumns(columns, rows, (row, _, at) => row[at])} />
    </section>
  );
}
