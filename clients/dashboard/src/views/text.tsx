/** The texts of a candidate, compared word by word with another one, or with the origin of each part. */

import { useMemo, useState } from "preact/hooks";
import type { Excerpt } from "../generated/events";
import { useWhole, wholeText } from "../loading";
import { Code } from "../panels/code";
import { Choice } from "../parts/choice";
import { Facts } from "../parts/facts";
import { candidateName, count, counted, score, signed } from "../parts/format";
import { ProposalLink, scoreName } from "../parts/row-name";
import { Shown } from "../parts/shown";
import { Block, Compared, Frame, Inline } from "../parts/text";
import { href, numberOf, refine } from "../route";
import { movedRows } from "../state/moved-rows";
import { originsOf, type Span } from "../state/origins";
import type { Candidate } from "../state/reduce";
import type { View } from "../state/view";
import { compare } from "../text/compare";
import { visible } from "../text/visible";
import type { ViewProps } from "./run";

const MODES = [
  ["compared", "compared"],
  ["origins", "where each part is from"],
  ["plain", "alone"],
] as const;
type Mode = (typeof MODES)[number][0];

export function TextView({ view, params, api }: ViewProps) {
  const chosen = numberOf(params, "candidate") ?? view.best;
  const candidate = view.candidates.find(({ index }) => index === chosen);
  const base = numberOf(params, "with") ?? (candidate?.index === 0 ? null : 0);
  const other = view.candidates.find(({ index }) => index === base && index !== candidate?.index);
  const mode = MODES.find(([name]) => name === params.get("as"))?.[0] ?? "compared";
  if (candidate === undefined) {
    return (
      <>
        {ABOUT}
        <p class="empty">
          {view.candidates.length === 0 ? "No candidate yet." : `The run has no candidate ${chosen} in this state.`}
        </p>
      </>
    );
  }
  return (
    <>
      {ABOUT}
      <div class="row tools">
        <Select
          name="Candidate"
          view={view}
          value={candidate.index}
          onChange={(index) => refine({ candidate: index })}
        />
        {mode === "compared" && (
          <Select
            name="compared with"
            view={view}
            value={other?.index ?? null}
            onChange={(index) => refine({ with: index })}
          />
        )}
        <Choice legend="Shown" options={MODES} value={mode as Mode} onChange={(as) => refine({ as })} />
      </div>
      <About view={view} candidate={candidate} other={mode === "compared" ? other : undefined} />
      {mode === "origins" ? (
        <Origins view={view} candidate={candidate} />
      ) : (
        <section class="panel">
          <h2>Texts</h2>
          <Texts api={api} candidate={candidate} other={mode === "compared" ? other : undefined} />
        </section>
      )}
      {candidate.code !== null && (
        <section class="panel">
          <h2>Code</h2>
          <Code view={view} candidate={candidate} />
        </section>
      )}
    </>
  );
}

const ABOUT = (
  <p class="about">
    The texts of any candidate: compared word by word with another candidate, or with the proposal that brought each
    part.
  </p>
);

interface SelectProps {
  readonly name: string;
  readonly view: View;
  readonly value: number | null;
  readonly onChange: (index: number) => void;
}

function Select({ name, view, value, onChange }: SelectProps) {
  return (
    <label>
      {name}
      <select value={String(value ?? "")} onChange={(event) => onChange(Number(event.currentTarget.value))}>
        {value === null && <option value="">choose</option>}
        {view.candidates.map((candidate) => (
          <option key={candidate.index} value={String(candidate.index)}>
            {candidate.index}
            {candidate.index === 0 ? " (seed)" : candidate.index === view.best ? " (best)" : ""}:{" "}
            {score(candidate.score)}
          </option>
        ))}
      </select>
    </label>
  );
}

function About({ view, candidate, other }: { view: View; candidate: Candidate; other: Candidate | undefined }) {
  const proposal = view.proposals.find((each) => each.candidate === candidate.index);
  const moved = other && movedRows(other, candidate);
  const [parent] = candidate.parents;
  return (
    <Facts
      as="figures"
      facts={[
        [scoreName(view), score(candidate.score)],
        [
          other && `against ${candidateName(other.index)}`,
          other &&
            moved &&
            `${signed(candidate.score - other.score)}: ${counted(moved.better, "row")} better, ${count(moved.worse)} worse, ${count(moved.same)} alike`,
        ],
        ["merge of candidates", candidate.parents.length > 1 && candidate.parents.join(" and ")],
        [
          "changed from",
          candidate.parents.length === 1 && parent !== undefined && (
            <a href={href("text", { candidate: parent })}>{candidateName(parent)}</a>
          ),
        ],
        ["made by", proposal && <ProposalLink view={view} proposal={proposal} />],
        [
          "words",
          other && (
            <>
              <ins>new</ins>, <del>removed</del>
            </>
          ),
        ],
      ]}
    />
  );
}

interface TextsProps {
  readonly api: string;
  readonly candidate: Candidate;
  /** What it is compared with. */
  readonly other: Candidate | undefined;
}

/** The texts of a candidate by component. */
export function Texts(props: TextsProps) {
  const components = [...new Set([...Object.keys(props.candidate.texts), ...Object.keys(props.other?.texts ?? {})])];
  return (
    <>
      {components.map((component) => (
        <Component key={component} component={component} {...props} />
      ))}
    </>
  );
}

/** One component; texts that events hold only the beginning of are loaded when asked for. */
function Component({ api, component, candidate, other }: TextsProps & { component: string }) {
  const [whole, setWhole] = useState(false);
  const [now, was] = [candidate.texts[component], other?.texts[component]];
  const cut = (now?.omitted ?? 0) + (was?.omitted ?? 0);
  const path = (index: number, text: Excerpt | undefined) =>
    whole && text !== undefined && text.omitted > 0 ? wholeText(api, index, component) : null;
  const nowLoaded = useWhole(path(candidate.index, now));
  const wasLoaded = useWhole(path(other?.index ?? 0, was));
  const text = nowLoaded.value ?? now ?? { text: "", omitted: 0 };
  const before = wasLoaded.value ?? was;
  const pieces = useMemo(
    () => (other === undefined ? null : compare(before?.text ?? "", text.text)),
    [other, before?.text, text.text],
  );
  if (pieces?.every(({ kind }) => kind === "same") && text.omitted + (before?.omitted ?? 0) === 0) {
    return (
      <details>
        <summary>
          <Inline text={component} length={200} /> <span class="quiet">unchanged</span>
        </summary>
        <Block text={text.text} label={component} />
      </details>
    );
  }
  return (
    <section>
      <Inline as="h3" text={component} length={200} />
      {pieces === null ? (
        <Block text={text.text} omitted={text.omitted} label={component} />
      ) : (
        <Compared pieces={pieces} label={component} />
      )}
      {cut > 0 && !whole && (
        <p>
          <button type="button" onClick={() => setWhole(true)}>
            Load the other {count(cut)} characters
          </button>
        </p>
      )}
      <Shown loaded={nowLoaded} />
      <Shown loaded={wasLoaded} />
    </section>
  );
}

function Origins({ view, candidate }: { view: View; candidate: Candidate }) {
  const [chosen, setChosen] = useState<number | null>(null);
  const texts = useMemo(
    () =>
      Object.keys(candidate.texts).map((name) => [name, originsOf(view.candidates, candidate.index, name)] as const),
    [view.candidates, candidate],
  );
  const origins = new Set(texts.flatMap(([, spans]) => spans.map((span) => span.candidate)));
  return (
    <div class="split origins">
      <ul class="list" aria-label="Where the parts are from">
        {view.candidates.map(
          ({ index, parents, score: own }) =>
            origins.has(index) && (
              <li key={index}>
                <button
                  type="button"
                  aria-pressed={index === chosen}
                  onClick={() => setChosen(index === chosen ? null : index)}
                >
                  {index === 0 ? "S" : index}
                </button>{" "}
                {index === 0 ? (
                  "The seed's words"
                ) : (
                  <>
                    Brought by{" "}
                    <a href={href("text", { candidate: index, with: parents[0] ?? null })}>candidate {index}</a>
                  </>
                )}
                , score {score(own)}
              </li>
            ),
        )}
      </ul>
      <div>
        {texts.map(([component, spans]) => (
          <section class="panel" key={component}>
            <Inline as="h2" text={component} length={120} />
            <Spans spans={spans} chosen={chosen} component={component} />
          </section>
        ))}
      </div>
    </div>
  );
}

function Spans({ spans, chosen, component }: { spans: readonly Span[]; chosen: number | null; component: string }) {
  const size = spans.reduce((sum, span) => sum + span.text.length, 0);
  return (
    <Frame label={component} size={size}>
      {spans.map((span, at) =>
        span.candidate === 0 ? (
          <span key={`${at} ${span.candidate}`} class={chosen === 0 ? "span chosen" : undefined}>
            {visible(span.text)}
          </span>
        ) : (
          <span key={`${at} ${span.candidate}`} class={span.candidate === chosen ? "span chosen" : "span"}>
            {visible(leading(span.text))}
            <sup>{span.candidate}</sup>
            {visible(span.text.slice(leading(span.text).length))}
          </span>
        ),
      )}
    </Frame>
  );
}

/** White space at the beginning of a text: the number of a span stands at its first word. */
function leading(text: string): string {
  return /^\s*/.exec(text)?.[0] ?? "";
}
