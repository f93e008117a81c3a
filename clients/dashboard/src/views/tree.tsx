/** All candidates and their parents. */

import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { Candidates } from "../panels/candidates";
import { Choice } from "../parts/choice";
import { candidateName, counted, score } from "../parts/format";
import { Legend } from "../parts/legend";
import { selectingRow } from "../parts/row-name";
import { Term } from "../parts/term";
import { ramp, useTheme } from "../parts/theme";
import { pressed, STEP, Zoom } from "../parts/zoom";
import { href, open } from "../route";
import type { Candidate } from "../state/reduce";
import { type Layout, layout } from "../state/tree";
import type { View } from "../state/view";
import type { ViewProps } from "./run";

/** Room around the tree, in pixels. */
const EDGE = 20;
/** Room of the label of the last generation. */
const LABEL = 70;

export function TreeView({ view }: ViewProps) {
  const [form, setForm] = useState<"tree" | "list">("tree");
  const [search, setSearch] = useState("");
  const [chosen, setChosen] = useState<number | null>(null);
  const found = useMemo(() => matches(view.candidates, search), [view.candidates, search]);
  const selected = view.candidates.find(({ index }) => index === (chosen ?? view.best));
  return (
    <>
      <p class="about">
        All candidates and their parents: which were changed into which, which are merges, and which are on the{" "}
        <Term of="Pareto front" />.
      </p>
      <div class="row tools">
        <Choice
          legend="As"
          options={[
            ["tree", "tree"],
            ["list", "list"],
          ]}
          value={form}
          onChange={setForm}
        />
        <label>
          Search
          <input
            type="search"
            value={search}
            placeholder="number or words"
            onInput={(event) => setSearch(event.currentTarget.value)}
          />
        </label>
        {search !== "" && (
          <span role="status">
            {found.size} of {counted(view.candidates.length, "candidate")}
          </span>
        )}
      </div>
      {view.candidates.length === 0 ? (
        <p class="empty">No candidate yet: the seed comes first, once it is scored on all {selectingRow(view)}s.</p>
      ) : form === "tree" ? (
        <>
          <Graph
            view={view}
            found={search === "" ? null : found}
            chosen={selected?.index ?? null}
            onChoose={setChosen}
          />
          <p class="readout" aria-live="polite">
            {selected !== undefined && <Described view={view} candidate={selected} />}
          </p>
          <Legend marks={MARKS} />
        </>
      ) : (
        <Candidates view={view} candidates={view.candidates.filter(({ index }) => search === "" || found.has(index))} />
      )}
    </>
  );
}

/** The candidates whose number is the search, or whose texts contain it. */
function matches(candidates: readonly Candidate[], search: string): Set<number> {
  const wanted = search.trim().toLowerCase();
  const found = new Set<number>();
  if (wanted === "") return found;
  for (const { index, texts } of candidates) {
    const inText = Object.values(texts).some(({ text }) => text.toLowerCase().includes(wanted));
    if (String(index) === wanted || inText) found.add(index);
  }
  return found;
}

function Described({ view, candidate }: { view: View; candidate: Candidate }) {
  const parents = candidate.parents;
  return (
    <>
      <a href={href("text", { candidate: candidate.index, with: parents[0] ?? null })}>
        {candidateName(candidate.index)}
      </a>
      : <strong>{score(candidate.score)}</strong>
      {candidate.index === view.best && ", the best"}
      {view.front.has(candidate.index) && ", on the Pareto front"}
      {parents.length > 1 && `, merged from candidates ${parents.join(" and ")}`}
      {parents.length === 1 && `, changed from ${candidateName(parents[0] as number)}`}, iteration {candidate.iteration}
    </>
  );
}

interface GraphProps {
  readonly view: View;
  readonly found: ReadonlySet<number> | null;
  readonly chosen: number | null;
  readonly onChoose: (index: number) => void;
}

function Graph({ view, found, chosen, onChoose }: GraphProps) {
  const placed = useMemo(() => layout(view.candidates), [view.candidates]);
  const place = useRef<HTMLDivElement>(null);
  const [size, setSize] = useState({ width: 900, height: 500 });
  const [factor, setFactor] = useState(1);
  const fit = () => {
    const { clientWidth: width, clientHeight: height } = place.current as HTMLElement;
    setSize({ width, height });
    setFactor(1);
  };
  useLayoutEffect(fit, [placed]);
  const zoom = (by: number) => setFactor(Math.max(0.05, Math.min(20, factor * by)));
  const choose = (index: number | undefined) => {
    if (index === undefined) return;
    onChoose(index);
    place.current?.querySelector(`#node-${index}`)?.scrollIntoView({ block: "nearest", inline: "nearest" });
  };
  const candidate = view.candidates.find(({ index }) => index === chosen);
  const siblings = placed.children.get(candidate?.parents[0] ?? -1) ?? [];
  const rank = siblings.indexOf(chosen ?? -1);
  const keys = pressed({
    ArrowLeft: () => choose(candidate?.parents[0]),
    ArrowRight: () => choose(placed.children.get(chosen ?? -1)?.[0]),
    ArrowUp: () => choose(siblings[rank - 1]),
    ArrowDown: () => choose(siblings[rank + 1]),
    Home: () => choose(0),
    End: () => choose(view.candidates.at(-1)?.index),
    "+": () => zoom(STEP),
    "-": () => zoom(1 / STEP),
    "0": fit,
    Enter: () => {
      if (candidate !== undefined) open("text", { candidate: candidate.index, with: candidate.parents[0] ?? null });
    },
  });
  return (
    <>
      <div class="row tools">
        <Zoom onZoom={zoom} onFit={fit} />
      </div>
      <div
        ref={place}
        class="graph"
        role="application"
        // biome-ignore lint/a11y/noNoninteractiveTabindex: keys move from candidate to candidate
        tabIndex={0}
        aria-label="Tree of candidates. Arrow keys move to parents, children and siblings, Enter opens the text. The list has the same."
        onKeyDown={keys}
      >
        <Drawn {...{ view, placed, found, chosen, onChoose }} {...scaled(placed, size, factor)} />
      </div>
    </>
  );
}

/** The whole tree, as large as is readable; a tree of very many leaves without labels. */
function scaled(placed: Layout, size: { width: number; height: number }, factor: number) {
  const across = (size.width - 2 * EDGE - LABEL) / Math.max(1, placed.depth - 1);
  const down = (size.height - 2 * EDGE) / Math.max(1, placed.lines - 1);
  return {
    across: factor * Math.max(12, Math.min(180, across)),
    down: factor * Math.max(0.5, Math.min(40, down)),
  };
}

interface DrawnProps extends GraphProps {
  readonly placed: Layout;
  readonly across: number;
  readonly down: number;
}

function Drawn({ view, placed, across, down, found, chosen, onChoose }: DrawnProps) {
  const theme = useTheme();
  // Only what is drawn depends on these.
  return useMemo(() => {
    const scores = view.candidates.map((candidate) => candidate.score);
    const low = scores.reduce((least, value) => Math.min(least, value), Number.POSITIVE_INFINITY);
    const high = scores.reduce((most, value) => Math.max(most, value), Number.NEGATIVE_INFINITY);
    const labelled = down >= 26 && across >= 48;
    const radius = Math.max(2, Math.min(5.5, down / 2.5));
    const point = (index: number) => {
      const node = placed.nodes.get(index);
      return node === undefined ? null : { x: EDGE + node.depth * across, y: EDGE + node.line * down };
    };
    const edges = view.candidates.flatMap(({ index, parents }) =>
      parents.map((parent, rank) => {
        const [from, to] = [point(parent), point(index)];
        if (from === null || to === null) return null;
        const middle = (from.x + to.x) / 2;
        return (
          <path
            key={`${parent} ${index}`}
            d={`M${from.x} ${from.y}C${middle} ${from.y} ${middle} ${to.y} ${to.x} ${to.y}`}
            fill="none"
            stroke="var(--rule-strong)"
            stroke-width={labelled ? 1 : 0.5}
            stroke-dasharray={rank > 0 ? "3 3" : undefined}
          />
        );
      }),
    );
    const nodes = view.candidates.map((candidate) => {
      const { index } = candidate;
      const { x, y } = point(index) ?? { x: 0, y: 0 };
      const share = high > low ? (candidate.score - low) / (high - low) : 1;
      const fill = `rgb(${ramp(theme, share).join(" ")})`;
      const marked = index === chosen || index === view.best;
      return (
        // biome-ignore lint/a11y/noStaticElementInteractions: the tree as a whole has the focus and the keys
        <g
          key={index}
          id={`node-${index}`}
          transform={`translate(${x} ${y})`}
          opacity={found !== null && !found.has(index) ? 0.15 : 1}
          onClick={() => onChoose(index)}
        >
          {index === chosen && <circle r={radius + 5} fill="none" stroke="var(--accent)" stroke-width="2" />}
          {candidate.parents.length > 1 ? (
            <path d={diamond(radius * 1.3)} fill={fill} stroke="var(--ink)" stroke-width={labelled ? 1 : 0.5} />
          ) : (
            <circle r={radius} fill={fill} stroke="var(--ink)" stroke-width={labelled ? 1 : 0.5} />
          )}
          {view.front.has(index) && <circle r={radius + 2.5} fill="none" stroke="var(--ink)" />}
          {(labelled || marked) && (
            <>
              <text x={radius + 7} y="-3" font-size="12" fill="var(--quiet)">
                {index}
                {index === view.best ? " best" : ""}
              </text>
              <text x={radius + 7} y="12" font-size="12" fill="var(--ink)">
                {String(Number(candidate.score.toPrecision(3)))}
              </text>
            </>
          )}
        </g>
      );
    });
    return (
      <svg
        aria-hidden="true"
        width={2 * EDGE + LABEL + (placed.depth - 1) * across}
        height={2 * EDGE + (placed.lines - 1) * down}
      >
        {edges}
        {nodes}
      </svg>
    );
  }, [view.candidates, view.front, view.best, placed, across, down, found, chosen, theme, onChoose]);
}

function diamond(size: number): string {
  return `M0 ${-size}L${size} 0L0 ${size}L${-size} 0Z`;
}

const MARKS = [
  [
    <g key="front" fill="none" stroke="var(--ink)">
      <circle cx="8" cy="6" r="3" />
      <circle cx="8" cy="6" r="5.500" />
    </g>,
    "on the Pareto front",
  ],
  [<path key="merge" d="M8 0.500L13.500 6L8 11.500L2.500 6Z" fill="none" stroke="var(--ink)" />, "merge"],
  [<path key="second" d="M0 6H16" stroke="var(--rule-strong)" stroke-dasharray="3 3" />, "second parent"],
  [null, "numbers: index above, score below"],
] as const;
