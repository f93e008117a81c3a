/** What the run has found so far, or came to, and why it ended. */

import type { CommandHint, Run, TiesCompared } from "../generated/events";
import { Commands } from "../parts/commands";
import { candidateName, count, counted, score, signed } from "../parts/format";
import { scoreName, selectingRow } from "../parts/score-name";
import { Term } from "../parts/term";
import { Block, Inline } from "../parts/text";
import { href } from "../route";
import { failuresFirst } from "../state/failing";
import { headlineOf } from "../state/headline";
import type { View } from "../state/view";
import { BestText } from "./best-text";

export function Result({ view, api }: { view: View; api: string }) {
  const { ties } = view;
  const { certificate, run, position, failures } = view.latest;
  const best = view.candidates.find(({ index }) => index === view.best);
  const { counts } = view;
  const headline = headlineOf(view);
  const rows = headline?.left
    ? `; each is the mean of ${count(headline.rows)} rows, those of the search and those scored after it`
    : `, the mean of ${counted(headline?.rows ?? 0, selectingRow(view))}`;
  const tied = view.candidates
    .filter((each) => best !== undefined && each !== best && each.score === best.score)
    .map(({ index }) => index);
  return (
    <section class="panel">
      <h2>Result {run?.driven ? "so far" : ""}</h2>
      {headline === null || best === undefined ? (
        <p>No candidate yet: the seed has not been scored on all {selectingRow(view)}s.</p>
      ) : (
        <>
          <p>
            {best.index === 0 ? (
              <>
                No candidate is better than the seed, whose {scoreName(view)} is {score(headline.seed)}
                {rows}.
              </>
            ) : (
              <>
                <a href={href("text", { candidate: best.index })}>Candidate {best.index}</a> is best: its{" "}
                {scoreName(view)} is <strong>{score(headline.best)}</strong>, that of the seed{" "}
                <strong>{score(headline.seed)}</strong> ({signed(headline.best - headline.seed)}){rows}.{" "}
                {tied.length > 0 && headline.left === 0 && (
                  <>
                    {tied.length === 1 ? "Candidate" : "Candidates"} {tied.slice(0, 5).join(", ")}
                    {tied.length > 5 && ` and ${count(tied.length - 5)} more`} {tied.length === 1 ? "has" : "have"} the
                    same score{ties === undefined && "; of these, the first one counts as best"}.
                  </>
                )}
              </>
            )}
          </p>
          <p class="quiet">
            {position === undefined ? (
              "Proposals: their outcomes are being read."
            ) : (
              <>
                {counted(view.proposals.length, "proposal")}: {count(counts.kept)} kept, {count(counts.rejected)}{" "}
                rejected
                {counts.racedOut > 0 && `, ${count(counts.racedOut)} raced out`}
                {counts.empty > 0 && `, ${count(counts.empty)} without a new text`}
                {counts.unfinished > 0 && `, ${count(counts.unfinished)} not decided when the run stopped`}
                {counts.pending > 0 && `, ${count(counts.pending)} being evaluated`}.
              </>
            )}
          </p>
        </>
      )}
      {failures !== undefined && failures.failed > 0 && failures.failed >= failures.evaluated && (
        <p class="bad">
          Every example failed in the program, {count(failures.failed)} of {count(failures.evaluated)}: its texts have
          not been compared.
        </p>
      )}
      {ties !== undefined && (
        <p>
          {ties.validation_left === 0
            ? `${ties.candidates.length} candidates tied on the validation rows.`
            : `The search scored candidates on ${ties.validation_rows} of the validation rows. There the compared candidates have these mean scores: ${means(ties, "validation")}.`}{" "}
          With {counted(ties.rows, "further row")} the best one is{" "}
          {ties.best === 0 ? "the seed" : `candidate ${ties.best}`}; mean scores on the rows of the search and the
          further rows: {means(ties, "mean")}.
        </p>
      )}
      {certificate !== undefined && (
        <>
          <h3>Is the gain real?</h3>
          <p>
            {certificate.certificate === null ? (
              <>
                No <Term of="certificate" />: <Inline text={certificate.none ?? ""} length={400} />
              </>
            ) : (
              <>
                <Term of="certificate">Certificate</Term> (test scores):{" "}
                <Inline text={certificate.certificate.statement} length={800} />
              </>
            )}
          </p>
        </>
      )}
      {best !== undefined && !run?.driven && <BestText view={view} best={best} api={api} />}
      {best !== undefined && run?.driven === false && run.commands.length > 0 && (
        <Place run={run} commands={failuresFirst(view) ? [] : run.commands.slice(0, 1)} />
      )}
      {!run?.driven && run?.reason && (
        <>
          <h3>Why it {run.status === "paused" ? "paused" : "ended"}</h3>
          <Reason text={run.reason} />
        </>
      )}
    </section>
  );
}

function means({ candidates }: TiesCompared, over: "validation" | "mean"): string {
  return candidates.map((each) => `${candidateName(each.index)}: ${score(each[over])}`).join(", ");
}

/** Where the result is, and the command to type next. */
function Place({ run, commands }: { run: Run; commands: readonly CommandHint[] }) {
  return (
    <>
      <h3>Where it is, and what is next</h3>
      {run.output !== null && (
        <p>
          best_candidate.json in <Inline as="code" text={run.output} length={400} /> has the best texts.
        </p>
      )}
      <Commands commands={commands} />
      <p>
        <a href={href("result")}>Each change with its reason, and all commands</a>
      </p>
    </>
  );
}

/** The reason of an end; its lines are kept if it has several. */
function Reason({ text }: { text: string }) {
  const shown = text.trimEnd();
  if (!shown.includes("\n")) {
    return <Inline as="p" text={shown} length={1_000} />;
  }
  return <Block text={shown} label="Reason" />;
}
