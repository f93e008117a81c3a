/** What each proposal was made from: the prompt, the answer, the minibatch before and after. */

import { useMemo, useState } from "preact/hooks";
import type { AnswerUsage, ComparedRow, PromptShown, ProposalShown, RowResult } from "../generated/answers";
import type { Proposal } from "../generated/events";
import { useLoaded } from "../loading";
import { Change } from "../panels/code";
import { Choice } from "../parts/choice";
import { candidateName, count, counted, countsOf, fromTo, OUTCOMES, score, sentence, took } from "../parts/format";
import { proposalName } from "../parts/row-name";
import { Shown } from "../parts/shown";
import { Compared, Inline } from "../parts/text";
import { href, numberOf } from "../route";
import type { View } from "../state/view";
import { compare } from "../text/compare";
import { Part, Result } from "./cell";
import type { ViewProps } from "./run";

/** Proposals that the list has at first, the last ones: thousands take seconds to draw. */
const LISTED = 200;

type Filter = Proposal["outcome"] | "all";

export function ReflectionView({ view, params, api }: ViewProps) {
  const [filter, setFilter] = useState<Filter>("all");
  const [listed, setListed] = useState(LISTED);
  const filters: [Filter, string][] = [
    ["all", `all (${count(view.proposals.length)})`],
    ...Object.entries(countsOf(view.proposals)).map(([name, times]): [Filter, string] => [
      name as Filter,
      `${OUTCOMES[name as Proposal["outcome"]]} (${count(times)})`,
    ]),
  ];
  const shown = view.proposals.filter(({ outcome }) => filter === "all" || outcome === filter);
  const at = numberOf(params, "proposal");
  const chosen = view.proposals.find((proposal) => proposal.at === at) ?? shown.at(-1);
  return (
    <>
      <p class="about">
        Each proposal with the prompt that asked for it, the model's answer, what it cost, and its scores on the
        minibatch before and after.
      </p>
      {view.proposals.length === 0 ? (
        <p class="empty">No proposal yet.</p>
      ) : (
        <>
          <div class="row tools">
            <Choice legend="Outcome" options={filters} value={filter} onChange={setFilter} />
          </div>
          <div class="split">
            <nav class="list" aria-label="Proposals">
              {shown
                .slice(-listed)
                .reverse()
                .map((proposal) => (
                  <a
                    key={proposal.key}
                    href={href("reflection", { proposal: proposal.at })}
                    aria-current={proposal === chosen ? "true" : undefined}
                  >
                    <Item view={view} proposal={proposal} />
                  </a>
                ))}
              {shown.length > listed && (
                <button type="button" onClick={() => setListed(listed + LISTED)}>
                  Show {count(Math.min(LISTED, shown.length - listed))} of {count(shown.length - listed)} earlier ones
                </button>
              )}
            </nav>
            {chosen !== undefined && <Chosen view={view} api={api} proposal={chosen} />}
          </div>
        </>
      )}
    </>
  );
}

function Item({ view, proposal }: { view: View; proposal: Proposal }) {
  const tone = proposal.outcome === "kept" ? "good" : proposal.outcome === "pending" ? "quiet" : "bad";
  return (
    <>
      {proposalName(view, proposal)}: <span class={tone}>{OUTCOMES[proposal.outcome]}</span>
      {proposal.before !== null && proposal.after !== null && (
        <span class="quiet">
          {" "}
          {counted(proposal.size, "row")}: {fromTo(score(proposal.before), score(proposal.after))}
        </span>
      )}
      <br />
      <Inline as="span" class="quiet" text={proposal.components.join(", ")} length={50} />
    </>
  );
}

function Chosen({ view, api, proposal }: { view: View; api: string; proposal: Proposal }) {
  const path = `${api}/proposal?at=${proposal.at}`;
  const answer = useLoaded<ProposalShown>(path, {
    version: proposal.decided ?? (proposal.digest === null ? -2 : -1),
  });
  const mutation = view.mutations.find(({ at }) => at === proposal.mutation);
  return (
    <article>
      <section class="panel">
        <h2>
          {sentence(proposalName(view, proposal))}, iteration {count(proposal.iteration)}: {OUTCOMES[proposal.outcome]}
        </h2>
        <p>
          {proposal.parents.length > 0 && (
            <>
              From{" "}
              {proposal.parents.map((parent, at) => (
                <span key={parent}>
                  {at > 0 && " and "}
                  <a href={href("text", { candidate: parent })}>{candidateName(parent)}</a>
                </span>
              ))}
              .{" "}
            </>
          )}
          {proposal.candidate !== null && (
            <>
              It is{" "}
              <a href={href("text", { candidate: proposal.candidate, with: proposal.parents[0] ?? null })}>
                {candidateName(proposal.candidate)}
              </a>
              .{" "}
            </>
          )}
          {proposal.why !== null && (
            <>
              Outcome: <Inline text={proposal.why} length={500} />
            </>
          )}
        </p>
        {proposal.before !== null && proposal.after !== null && (
          <p>
            It was made from the results of {counted(proposal.size, "training row")}. Their scores add up to{" "}
            {score(proposal.before)} before the change and {score(proposal.after)} after it.
          </p>
        )}
      </section>
      {mutation !== undefined && (
        <section class="panel">
          <h2>Change of code</h2>
          <Change key={mutation.at} mutation={mutation} isOpen={proposal.outcome === "refused"} />
        </section>
      )}
      <Shown loaded={answer}>
        {(found) => (
          <Details
            key={proposal.key}
            found={found}
            path={path}
            byProgram={view.latest.run?.reflection_model === null}
          />
        )}
      </Shown>
    </article>
  );
}

function Usage({ prompt, usage }: { prompt: PromptShown; usage: AnswerUsage }) {
  const known = took(usage);
  return (
    <p class="quiet">
      By <Inline text={prompt.model ?? "the program"} length={80} />
      {known ? `: ${known}` : prompt.model === null && "; it reported no usage"}
      {usage.again !== null && (
        <>
          {" "}
          (asked again: the first answer was <Inline text={usage.again} />)
        </>
      )}
    </p>
  );
}

interface DetailsProps {
  readonly found: ProposalShown;
  /** What asked for it. */
  readonly path: string;
  /** The program proposed, so that there was no prompt. */
  readonly byProgram: boolean;
}

export function Details({ found: first, path, byProgram }: DetailsProps) {
  const [all, setAll] = useState(false);
  const answer = useLoaded<ProposalShown>(all ? `${path}&rows=all` : null);
  const found = answer.value ?? first;
  const omitted = found.rows.length > 0 ? found.size - found.rows.length : 0;
  const part = omitted > 0 ? `, the first ${count(found.rows.length)} of ${count(found.size)}` : "";
  return (
    <>
      {found.prompts.map((prompt, at) => (
        <Prompt key={at} prompt={prompt} byProgram={byProgram} part={part} />
      ))}
      {Object.entries(found.texts).map(([component, { before, after }]) => (
        <Changed key={component} component={component} before={before.text} after={after.text} />
      ))}
      {found.rows.length > 0 && (
        <section class="panel">
          <h2>Rows of its minibatch{part} (training rows)</h2>
          {found.rows.map((row) => (
            <Row key={row.row} row={row} />
          ))}
          {omitted > 0 && !all && (
            <button type="button" onClick={() => setAll(true)}>
              Show all {count(found.size)} rows
            </button>
          )}
          <Shown loaded={answer} />
        </section>
      )}
    </>
  );
}

/** `part`: which of the records are shown, empty for all. */
function Prompt({ prompt, byProgram, part }: { prompt: PromptShown; byProgram: boolean; part: string }) {
  return (
    <section class="panel">
      <h2>
        {byProgram ? "What the program read" : "Prompt and answer"}:{" "}
        <Inline text={prompt.component ?? "all components"} length={80} />
      </h2>
      {prompt.usage.map((usage, at) => (
        <Usage key={at} prompt={prompt} usage={usage} />
      ))}
      {prompt.hints.length > 0 && (
        <p>
          With {prompt.hints.length === 1 ? "the hint" : "the hints"} of users:{" "}
          {prompt.hints.map((hint, at) => (
            <Inline as="q" key={at} text={hint} length={300} />
          ))}
        </p>
      )}
      {prompt.prompt !== null ? (
        <Part name="Prompt" value={prompt.prompt} />
      ) : (
        <Part name={`${byProgram ? "Records" : "What reflection read"}${part}`} value={prompt.records} />
      )}
      <Part name={byProgram ? "What it proposed" : "Answer"} value={prompt.answer} />
    </section>
  );
}

function Changed({ component, before, after }: { component: string; before: string; after: string }) {
  const pieces = useMemo(() => compare(before, after), [before, after]);
  return (
    <section class="panel">
      <h2>
        What it changed in <Inline text={component} length={80} />
      </h2>
      <Compared pieces={pieces} label={component} />
    </section>
  );
}

function outcomeOf(result: RowResult | null): string {
  if (result === null) return "no result";
  return result.status === "ok" ? score(result.score) : `failed (counts as ${score(result.score)})`;
}

export function Row({ row }: { row: ComparedRow }) {
  return (
    <details>
      <summary>
        {row.split} <Inline text={row.row} length={60} />: {fromTo(outcomeOf(row.before), outcomeOf(row.after))}{" "}
        {row.input !== null && <Inline as="span" class="quiet" text={row.input.text} length={200} />}
      </summary>
      <Part name="Input" value={row.input} />
      <div class="pair">
        <div>
          <h3>Before</h3>
          {row.before === null ? <p class="quiet">Not recorded.</p> : <Result result={row.before} />}
        </div>
        <div>
          <h3>After</h3>
          {row.after === null ? <p class="quiet">Not recorded.</p> : <Result result={row.after} />}
        </div>
      </div>
    </details>
  );
}
