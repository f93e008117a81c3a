/** The last change of the best candidate: its words, the rows that it fixed and broke, and what it took. */

import { useMemo, useState } from "preact/hooks";
import { useAnswer } from "../answers";
import type { Cell } from "../generated/answers";
import type { Excerpt } from "../generated/events";
import { candidateName, count, counted, score } from "../parts/format";
import { scoredRow } from "../parts/row-name";
import { scoreName } from "../parts/score-name";
import { Compared, Inline } from "../parts/text";
import { href } from "../route";
import { lastChange } from "../state/last-change";
import type { Candidate } from "../state/reduce";
import { scoredRows } from "../state/scored-rows";
import type { View } from "../state/view";
import { aroundChanges, compare } from "../text/compare";

/** Rows that are listed at first, and those that are listed besides when asked for. */
const ROWS = 6;
const MORE_ROWS = 100;

interface Props {
  readonly view: View;
  readonly api: string;
}

export function LastChange({ view, api }: Props) {
  const change = useMemo(() => lastChange(view), [view]);
  if (change === null) return null;
  const { parent, candidate, better, worse, proposal, calls } = change;
  const same = scoredRows(candidate.scores) - better.length - worse.length;
  return (
    <section class="panel">
      <h2>The last change: why candidate {candidate.index} is the best</h2>
      <p>
        The {scoreName(view)} went from <strong>{score(parent.score)}</strong> ({candidateName(parent.index)}) to{" "}
        <strong>{score(candidate.score)}</strong>: {counted(better.length, "row")} fixed, {count(worse.length)} broken,{" "}
        {count(same)} the same.{calls !== null && ` Its iteration took ${counted(calls, "metric call")}.`}{" "}
        {proposal !== undefined && <a href={href("reflection", { proposal: proposal.at })}>Why it was proposed</a>}
      </p>
      {Object.keys({ ...parent.texts, ...candidate.texts }).map((component) => (
        <Words key={component} component={component} parent={parent} candidate={candidate} />
      ))}
      <div class="pair">
        <Rows
          {...{ view, api, parent, candidate }}
          name={`Fixed: ${counted(better.length, "row")} with a higher score`}
          places={better}
        />
        <Rows
          {...{ view, api, parent, candidate }}
          name={`Broken: ${counted(worse.length, "row")} with a lower score`}
          places={worse}
        />
      </div>
    </section>
  );
}

/** The changed words of a component with some of what stands beside them; nothing if it did not change. */
function Words({ component, parent, candidate }: { component: string; parent: Candidate; candidate: Candidate }) {
  const [before, after] = [parent.texts[component], candidate.texts[component]];
  const pieces = useMemo(
    () => aroundChanges(compare(before?.text ?? "", after?.text ?? "")),
    [before?.text, after?.text],
  );
  const omitted = (before?.omitted ?? 0) + (after?.omitted ?? 0);
  if (omitted === 0 && pieces.every(({ kind }) => kind === "same")) return null;
  return (
    <>
      <p class="quiet">
        <Inline text={component} length={200} />: <ins>new words</ins>, <del>removed words</del>
        {omitted > 0 && `; compared without the last ${counted(omitted, "character")}`} (
        <a href={href("text", { candidate: candidate.index, with: parent.index })}>the whole text</a>)
      </p>
      <Compared pieces={pieces} label={component} />
    </>
  );
}

interface RowsProps extends Props {
  readonly parent: Candidate;
  readonly candidate: Candidate;
  readonly name: string;
  readonly places: readonly number[];
}

function Rows({ view, api, parent, candidate, name, places }: RowsProps) {
  const [opened, setOpened] = useState(false);
  const item = (place: number) => (
    <li key={place}>
      <a href={href("rows", { candidate: candidate.index, row: place })}>
        <Inline text={scoredRow(view, place)} length={60} />
      </a>
      : {score(parent.scores[place])} {"\u2192"} {score(candidate.scores[place])}{" "}
      <RowText path={`${api}/cell?candidate=${candidate.index}&row=${place}`} />
    </li>
  );
  const more = places.length - ROWS;
  return (
    <div>
      <h3>{name}</h3>
      <ul>{places.slice(0, ROWS).map(item)}</ul>
      {more > 0 && (
        <details onToggle={(event) => setOpened(event.currentTarget.open)}>
          <summary>and {count(more)} more</summary>
          {opened && <ul>{places.slice(ROWS, ROWS + MORE_ROWS).map(item)}</ul>}
          {more > MORE_ROWS && (
            <p>
              {count(more - MORE_ROWS)} further ones are in the <a href={href("rows")}>heat map</a>.
            </p>
          )}
        </details>
      )}
    </div>
  );
}

/** The beginning of a row's content, once it has been loaded. */
function RowText({ path }: { path: string }) {
  const answer = useAnswer<Cell>(path);
  if (answer.kind !== "ready" || answer.value.input === null) return null;
  return <Inline as="span" class="quiet" text={plainFields(answer.value.input)} length={110} />;
}

/** Return the fields of a row without the marks of JSON, if all of it was sent. */
function plainFields({ text, omitted }: Excerpt): string {
  if (omitted > 0 || !text.startsWith("{")) return text;
  try {
    const fields = Object.entries(JSON.parse(text) as Record<string, unknown>);
    return fields
      .map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`)
      .join(" ");
  } catch {
    return text; // a text that only looks like JSON
  }
}
