/** What the run does at this moment, what it has used, and what fails. */

import { useEffect, useMemo, useState } from "preact/hooks";
import { useWhole } from "../answers";
import type { ViewProps } from "../app";
import type { FailureGroup, Now, SentText, SpendingSoFar, Steer } from "../generated/events";
import {
  candidateName,
  candidateOrProposal,
  count,
  counted,
  duration,
  money,
  score,
  signed,
  spent,
  time,
} from "../parts/format";
import { Commands } from "../parts/header";
import { onRows } from "../parts/rows-scored";
import { Scrolled } from "../parts/scrolled";
import { Block, Inline } from "../parts/text";
import { href } from "../route";
import { failedAt, failedRows } from "../state/failed-rows";
import { movedRows } from "../state/moved-rows";
import type { Candidate } from "../state/reduce";
import type { View } from "../state/view";
import { compare } from "../text/compare";

/** Seconds without a result from which on the page states it. */
const QUIET_S = 10;

export function NowView({ view, api }: ViewProps) {
  const { run, failures, spending, now, leaks, copied_examples: copied } = view.latest;
  return (
    <>
      <p class="about">What the run does at this moment, what it has found and used, and what fails.</p>
      <div class="panels">
        <Result view={view} api={api} />
        {run?.driven && now !== undefined && <Activity now={now} />}
        <Steps view={view} />
        <Budget view={view} />
        {now !== undefined && now.endpoints.length > 0 && <Endpoints now={now} />}
        {failures !== undefined && failures.failed > 0 && (
          <section class="panel wide">
            <h2>
              Failed examples: {count(failures.failed)} of {count(failures.evaluated)}
            </h2>
            {failures.groups.map((group, at) => (
              <Failure key={`${group.type} ${at}`} group={group} opened={at === 0} />
            ))}
          </section>
        )}
        <Warnings view={view} />
        {leaks !== undefined && leaks.rows > 0 && (
          <section class="panel">
            <h2>Leaks: {counted(leaks.rows, "row")} in the best candidate</h2>
            <ul>
              {leaks.listed.map((leak, at) => (
                <li key={at}>
                  {leak.split} row <Inline text={leak.row} />: {counted(leak.words, "word")} in{" "}
                  <Inline text={leak.component} />, line {leak.line}
                </li>
              ))}
            </ul>
          </section>
        )}
        {copied !== undefined && copied.count > 0 && (
          <section class="panel">
            <h2>Copied from training rows: {counted(copied.count, "part")}</h2>
            <ul>
              {copied.copies.map((copy, at) => (
                <li key={at}>
                  <a href={href("text", { candidate: copy.candidate })}>{candidateName(copy.candidate)}</a>,{" "}
                  <Inline text={copy.component} />: {counted(copy.words, "word")}, as in{" "}
                  {counted(copy.row_count, "row")} (<Inline text={copy.rows.join(", ")} />
                  ):{" "}
                  <q>
                    <Inline text={copy.text} length={200} />
                  </q>
                </li>
              ))}
            </ul>
          </section>
        )}
        {spending !== undefined && <Spending spending={spending} />}
        <Steers view={view} />
        {run !== undefined && <About view={view} />}
      </div>
    </>
  );
}

function Result({ view, api }: { view: View; api: string }) {
  const { certificate, run, ties, stop, finished, failures } = view.latest;
  const reason = finished?.reason ?? run?.reason ?? stop?.reason;
  const best = view.candidates.find(({ index }) => index === view.best);
  const seed = view.candidates[0];
  const { counts } = view;
  return (
    <section class="panel">
      <h2>Result {run?.driven ? "so far" : ""}</h2>
      {seed === undefined || best === undefined ? (
        <p>No candidate yet: the seed has not been scored on all validation rows.</p>
      ) : (
        <>
          <p>
            {best.index === 0 ? (
              <>
                No candidate is better than the seed, which scores {score(seed.score)} {onRows(view)}.
              </>
            ) : (
              <>
                <a href={href("text", { candidate: best.index })}>Candidate {best.index}</a> is best: it scores{" "}
                <strong>{score(best.score)}</strong> {onRows(view)}, the seed <strong>{score(seed.score)}</strong> (
                {signed(best.score - seed.score)}).
              </>
            )}
          </p>
          <p class="quiet">
            {counted(
              counts.kept + counts.rejected + counts.racedOut + counts.empty + (beingRead(view) ? counts.pending : 0),
              "proposal",
            )}
            : {count(counts.kept)} accepted, {count(counts.rejected)} rejected
            {counts.racedOut > 0 && `, ${count(counts.racedOut)} raced out`}
            {counts.empty > 0 && `, ${count(counts.empty)} without a new text or decision`}
            {counts.pending > 0 &&
              (beingRead(view)
                ? `; the outcomes of ${count(counts.pending)} are being read`
                : `; ${count(counts.pending)} pending`)}
            .
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
          {ties.candidates.length} candidates tied on the validation rows; {counted(ties.rows, "further row")} chose
          candidate {ties.best}.
        </p>
      )}
      {certificate !== undefined && (
        <>
          <h3>Is the gain real?</h3>
          <p>
            {certificate.none !== null ? (
              <>
                No certificate: <Inline text={certificate.none} length={400} />
              </>
            ) : (
              <Inline text={certificate.statement ?? certificate.verdict ?? ""} length={800} />
            )}
          </p>
        </>
      )}
      {best !== undefined && !run?.driven && <BestText view={view} best={best} api={api} />}
      {!run?.driven && reason && (
        <>
          <h3>Why it {run?.status === "paused" ? "paused" : "ended"}</h3>
          <Reason text={reason} />
        </>
      )}
      {!run?.driven && (run?.status === "failed" || run?.status === "paused") && <NextStep view={view} />}
    </section>
  );
}

/** Whether outcomes of proposals have not been read yet of a run that is not driven. */
function beingRead({ latest: { run, position } }: View): boolean {
  return run?.driven === false && position?.complete !== true && position?.why_not_replayed == null;
}

/** The reason of an end; its lines are kept if it has several. */
function Reason({ text }: { text: string }) {
  const shown = text.trimEnd();
  if (!shown.includes("\n")) {
    return (
      <p>
        <Inline text={shown} length={1_000} />
      </p>
    );
  }
  return <Block text={shown} label="Reason" />;
}

/** What to do about a run that failed or was paused because of its program, and with which command. */
function NextStep({ view }: { view: View }) {
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

/** The best text, in part if it is long, and the line of a program that loads it. */
function BestText({ view, best, api }: { view: View; best: Candidate; api: string }) {
  const { run } = view.latest;
  return (
    <>
      <h3>{best.index === 0 ? "The seed's text" : "Best text"}</h3>
      {Object.entries(best.texts).map(([component, text]) => (
        <div key={component} class="bounded">
          <p class="quiet">
            <Inline text={component} length={120} />{" "}
            <Copy
              text={text}
              name={component}
              path={`${api}/text?candidate=${best.index}&component=${encodeURIComponent(component)}`}
            />
          </p>
          <Block text={text.text} omitted={text.omitted} label={component} />
        </div>
      ))}
      {run?.output && (
        <p>
          In a program: <code>{loadCall(run.output)}</code>
        </p>
      )}
    </>
  );
}

/** The call that loads the best candidate of an output folder, as the report prints it. */
function loadCall(output: string): string {
  return `evolverpc.load_candidate(${JSON.stringify(output)})`;
}

/** Puts a text on the clipboard; one of which the events hold a part is loaded first. */
function Copy({ text, name, path }: { text: SentText; name: string; path: string }) {
  const [wanted, setWanted] = useState(false);
  const [copied, setCopied] = useState(false);
  const whole = useWhole(wanted && text.omitted > 0 ? path : null);
  const found = text.omitted === 0 ? text.text : whole.kind === "ready" ? whole.value.text : null;
  useEffect(() => {
    if (wanted && found !== null) navigator.clipboard.writeText(found).then(() => setCopied(true));
  }, [wanted, found]);
  if (navigator.clipboard === undefined) return null; // not on a page of an untrusted origin
  return (
    <button type="button" aria-label={`Copy ${name}`} onClick={() => setWanted(true)}>
      {copied ? "Copied" : "Copy"}
    </button>
  );
}

/** Why the best text won: its line from the seed on, and the rows that are still lost. */
function Steps({ view }: { view: View }) {
  const line = useMemo(() => ancestors(view.candidates, view.best), [view.candidates, view.best]);
  const seed = view.candidates[0];
  const best = line.at(-1);
  if (seed === undefined || best === undefined || best.index === 0) return null;
  const moved = movedRows(seed, best);
  const lowest = best.scores.reduce(
    (least, score) => Math.min(least, Number.isNaN(score) ? least : score),
    Number.POSITIVE_INFINITY,
  );
  const lost = best.scores.reduce((sum, score) => sum + (score === lowest ? 1 : 0), 0);
  return (
    <section class="panel">
      <h2>How the best text came about</h2>
      <ol class="steps">
        {line.slice(1).map((candidate, at) => (
          <Step key={candidate.index} view={view} parent={line[at] as Candidate} candidate={candidate} />
        ))}
      </ol>
      <p>
        Against the seed: {counted(moved.better, "row")} better, {count(moved.worse)} worse, {count(moved.same)} alike.{" "}
        {lost === best.scores.length
          ? `All ${counted(lost, "row")} have a score of ${score(lowest)}`
          : `${counted(lost, "row")} ${lost === 1 ? "has" : "have"} its lowest score, ${score(lowest)}`}
        : <a href={href("rows")}>see the rows</a>, or{" "}
        <a href={href("text", { as: "origins" })}>where each part is from</a>.
      </p>
    </section>
  );
}

function Step({ view, parent, candidate }: { view: View; parent: Candidate; candidate: Candidate }) {
  const proposal = view.proposals.find((each) => each.candidate === candidate.index);
  const added = useMemo(() => firstWords(parent, candidate), [parent, candidate]);
  return (
    <li>
      <a href={href("text", { candidate: candidate.index, with: parent.index })}>
        {candidate.parents.length > 1 ? "Merge" : "Candidate"} {candidate.index}
      </a>
      : {score(parent.score)} {"\u2192"} <strong>{score(candidate.score)}</strong>
      {proposal !== undefined && (
        <>
          ,{" "}
          <a href={href("reflection", { proposal: proposal.at })}>
            {view.latest.run?.reflection_model === null ? "its proposal" : "prompt and answer"}
          </a>
        </>
      )}
      {added !== "" && (
        <>
          <br />
          <span class="quiet">
            adds <Inline text={added} length={110} />
          </span>
        </>
      )}
    </li>
  );
}

/** The candidate and its first parents, the seed first. */
function ancestors(candidates: readonly Candidate[], best: number | null): Candidate[] {
  const known = new Map(candidates.map((candidate) => [candidate.index, candidate]));
  const line: Candidate[] = [];
  let next = known.get(best ?? -1);
  while (next !== undefined && !line.includes(next)) {
    line.push(next);
    next = known.get(next.parents[0] ?? -1);
  }
  return line.reverse();
}

function firstWords(parent: Candidate, candidate: Candidate): string {
  for (const [component, { text }] of Object.entries(candidate.texts)) {
    const before = parent.texts[component]?.text ?? "";
    if (before === text) continue;
    const added = compare(before, text).filter(({ kind, text }) => kind === "add" && text.trim());
    if (added.length > 0) return added.map((piece) => piece.text.trim()).join(" \u2026 ");
  }
  return "";
}

function Activity({ now }: { now: Now }) {
  return (
    <section class="panel">
      <h2>At this moment</h2>
      <dl class="facts">
        <Fact name="phase">{now.phase ?? "unknown"}</Fact>
        {now.iteration !== null && <Fact name="iteration">{count(now.iteration)}</Fact>}
        <Fact name="examples in flight">{count(now.in_flight)}</Fact>
        {now.last_result !== null && (now.no_result_s ?? 0) >= QUIET_S && (
          <Fact name="no result">
            <strong class="warn">
              since {time(now.last_result)} ({duration(now.no_result_s)})
            </strong>
          </Fact>
        )}
        <Fact name="examples per second">
          {now.rate === null ? "unknown" : now.rate === 0 ? "nothing finishes" : score(now.rate)}
        </Fact>
        <Fact name="waiting for a slot">{counted(now.waiting ?? 0, "call")}</Fact>
        {now.waiting_for !== null && (
          <Fact name="waits for">
            <Inline text={now.waiting_for} length={300} />
          </Fact>
        )}
        {now.reflecting_since !== null && (
          <Fact name="reflecting">
            on <Inline text={now.reflecting.join(", ") || "the program"} /> since {time(now.reflecting_since)}
          </Fact>
        )}
        <Fact name="last heartbeat">{now.beat_age_s === null ? "none" : `${duration(now.beat_age_s)} ago`}</Fact>
      </dl>
      {now.longest.length > 0 && (
        <>
          <h3>In flight longest</h3>
          <ul>
            {now.longest.map(({ row, candidate, seconds, limit_s }, at) => (
              <li key={at}>
                <Inline text={row} length={80} /> with <Inline text={candidateOrProposal(candidate)} length={80} />: for{" "}
                {duration(seconds)}, {limit_s === null ? "which nothing limits" : `ended at ${duration(limit_s)}`}
              </li>
            ))}
          </ul>
        </>
      )}
    </section>
  );
}

function Fact({ name, children }: { name: string; children: preact.ComponentChildren }) {
  return (
    <>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </>
  );
}

function Budget({ view }: { view: View }) {
  const { run, now, spending } = view.latest;
  if (run === undefined) return null;
  const share = run.budget ? Math.min(1, view.metricCalls / run.budget) : null;
  const forecast = run.driven ? now?.forecast : null;
  return (
    <section class="panel">
      <h2>Budget</h2>
      <p>
        {count(view.metricCalls)} metric calls
        {run.budget !== null && ` of ${count(run.budget)} (${Math.round((share ?? 0) * 100)} %)`}
      </p>
      {share !== null && (
        <div class="bar" aria-hidden="true">
          <i style={{ width: `${share * 100}%` }} />
        </div>
      )}
      <dl class="facts">
        <Fact name="cost">
          {spent(spending?.cost_usd ?? now?.spent_usd, spending?.unpriced ?? 0, spending?.unreported ?? 0)}
        </Fact>
        <Fact name="active time">{duration(now?.active_seconds ?? view.latest.finished?.active_seconds)}</Fact>
        {forecast && (
          <Fact name="forecast">
            at this rate <Inline text={forecast.limit} /> ends the run in about {duration(forecast.seconds_left)}
            {forecast.cost_usd !== null && `, at a cost of ${money(forecast.cost_usd)}`}
          </Fact>
        )}
      </dl>
    </section>
  );
}

function Endpoints({ now }: { now: Now }) {
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

export function Failure({ group, opened }: { group: FailureGroup; opened: boolean }) {
  return (
    <details open={opened}>
      <summary>
        <strong>
          <Inline text={group.type} />
        </strong>{" "}
        {counted(group.count, "time")}, {group.status === "timeout" ? "timed out" : "raised by the program"}, on{" "}
        {counted(group.row_count, "row")}: <Inline text={group.message} length={160} />
      </summary>
      <p class="quiet">
        Rows <Inline text={group.rows.join(", ")} length={200} />
        {group.row_count > group.rows.length && ` and ${count(group.row_count - group.rows.length)} more`}. By
        candidate:{" "}
        <Inline
          text={Object.entries(group.candidates)
            .map(([name, times]) => `${candidateOrProposal(name)}: ${times}`)
            .join(", ")}
          length={200}
        />
        . The first, of row <Inline text={group.row} /> with <Inline text={candidateOrProposal(group.candidate)} />:
      </p>
      <Block text={group.traceback ?? group.message} label="Traceback" />
      {group.log && (
        <>
          <h3>What the program wrote</h3>
          <Block text={group.log} label="Log" />
        </>
      )}
    </details>
  );
}

export function Warnings({ view }: { view: View }) {
  if (view.warnings.length === 0) return null;
  return (
    <section class="panel">
      <h2>Warnings</h2>
      <ul>
        {view.warnings.map((warning) => (
          <li key={warning.id}>
            <Inline text={warning.message} length={600} />
          </li>
        ))}
      </ul>
    </section>
  );
}

function Spending({ spending }: { spending: SpendingSoFar }) {
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
                  {name}
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

function Steers({ view }: { view: View }) {
  if (view.steers.length === 0) return null;
  return (
    <section class="panel">
      <h2>What users asked of the run</h2>
      <ul>
        {view.steers.map((steer) => (
          <li key={steer.key}>
            <strong>
              <Inline text={steer.action} />
            </strong>{" "}
            <Inline text={detailOf(steer)} length={120} />
            {steer.by && (
              <>
                {" "}
                by <Inline text={steer.by} />
              </>
            )}
            , <span class="quiet">{time(steer.requested)}</span>:{" "}
            {steer.outcome === null ? "waits for its turn" : <Inline text={steer.outcome} length={300} />}
            {steer.at !== null && ` at entry ${count(steer.at)}`}
          </li>
        ))}
      </ul>
    </section>
  );
}

/** What was posted besides the action's name. */
function detailOf({ detail }: Steer): string {
  const shown = Object.entries(detail).filter(([name, value]) => name !== "kind" && value !== null);
  return shown
    .map(([name, value]) => `${name} ${typeof value === "string" ? value : JSON.stringify(value)}`)
    .join(", ");
}

function About({ view }: { view: View }) {
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
          <Inline text={[run.program, run.program_version].filter(Boolean).join(" ") || "unnamed"} length={200} />
        </Fact>
        <Fact name="components">
          <Inline text={run.components.join(", ")} length={400} />
        </Fact>
        <Fact name="rows">{rows.join(", ")}</Fact>
        {sealed !== undefined && <Fact name="sealed test rows">{count(sealed.rows)}</Fact>}
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
        <Fact name="store">
          <Inline text={run.store} length={300} />
        </Fact>
        {run.output && (
          <Fact name="output folder">
            <Inline text={run.output} length={300} />
          </Fact>
        )}
      </dl>
      {run.commands.length > 0 && <h3>Commands</h3>}
      <Commands commands={run.commands} />
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
