/** Candidates by validation rows, as a heat map or as a table, and the details of one cell. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Choice } from "../parts/choice";
import { candidateName, count, counted, score } from "../parts/format";
import { type Cell, type Column, HeatMap, heightOfNames, type MapData, scaleOf } from "../parts/heat-map";
import { Legend } from "../parts/legend";
import { scoredRow, selectingRow } from "../parts/row-name";
import { Table } from "../parts/table";
import { Inline } from "../parts/text";
import { useTheme } from "../parts/theme";
import { pressed, STEP, Zoom } from "../parts/zoom";
import { href, numberOf, refine } from "../route";
import { failedRows } from "../state/failed-rows";
import { lowestScore, placesLowest } from "../state/moved-rows";
import { asRecorded, byDifficulty, rowMeans } from "../state/order";
import type { Candidate } from "../state/reduce";
import type { View } from "../state/view";
import { CellDetails } from "./cell";
import type { ViewProps } from "./run";

const ORDERS = [
  ["difficulty", "difficulty"],
  ["recorded", "as recorded"],
] as const;
type OrderName = (typeof ORDERS)[number][0];

const MISSING = <path d="M0 6L6 0M0 12L12 0M4 12L16 0M10 12L16 6" stroke="var(--rule-strong)" />;
const FAILED = (
  <>
    <rect width="12" height="12" fill="var(--failed)" />
    <path d="M3 3L9 9M9 3L3 9" stroke="var(--panel)" stroke-width="1.500" />
  </>
);

const PAGE = 100;

export function RowsView({ view, params, api }: ViewProps) {
  const [form, setForm] = useState<"map" | "table">("map");
  const [sorted, setSorted] = useState<OrderName>("difficulty");
  const lowest = view.candidates.find(({ index }) => index === numberOf(params, "lowest"));
  const pool = useMemo(
    () => poolOf(view, sorted, lowest),
    [view.candidates, view.best, view.rows.length, view.latest.failures, sorted, lowest],
  );
  const matrix = useMemo(() => matrixOf(pool, view), [pool, view]);
  const candidate = numberOf(params, "candidate");
  const row = numberOf(params, "row");
  const opened = candidate !== null && row !== null;
  const choose = (index: number | null, place: number) => refine({ candidate: index, row: place });
  return (
    <>
      <p class="about">
        Each line is a {selectingRow(view)}, each column a candidate; the colour of a cell is the candidate's score on
        the row: lines of one colour are rows that all candidates lose or win, others are rows that a change fixed or
        broke.
      </p>
      <div class="row tools">
        <Choice legend="Rows by" options={ORDERS} value={sorted} onChange={setSorted} />
        <Choice
          legend="As"
          options={[
            ["map", "heat map"],
            ["table", "table"],
          ]}
          value={form}
          onChange={setForm}
        />
      </div>
      {sampled(view) && lowest === undefined && (
        <p>
          The search scores candidates on a random sample of {count(matrix.order.length)} of the{" "}
          {count(view.rows.length)} validation rows. Only these rows are shown.
        </p>
      )}
      {lowest !== undefined && (
        <p>
          Only the {counted(pool.order.length, "row")} on which {candidateName(lowest.index)} has its lowest score,{" "}
          {score(lowestScore(lowest))}. <a href={href("rows")}>Show all {count(view.rows.length)} rows</a>
        </p>
      )}
      <div class={opened ? "beside" : undefined}>
        <div>
          {matrix.columns.length === 0 || view.rows.length === 0 ? (
            <p class="empty">No result on a {selectingRow(view)} yet.</p>
          ) : form === "map" ? (
            <Picture matrix={matrix} view={view} candidate={candidate} row={row} onOpen={choose} />
          ) : (
            <RowsTable matrix={matrix} view={view} lowest={lowest?.index ?? null} />
          )}
        </div>
        {opened && <CellDetails view={view} api={api} candidate={candidate} row={row} />}
      </div>
    </>
  );
}

/** What follows from the pool alone: it stays while results of a proposal arrive. */
type Pool = ReturnType<typeof poolOf>;

/** The columns of the map: candidates, then those with some results that are not in the pool. */
type Matrix = ReturnType<typeof matrixOf>;

/** `lowest`: only the rows on which this candidate has its lowest score. */
function poolOf(view: View, sorted: OrderName, lowest: Candidate | undefined) {
  const { candidates, latest } = view;
  const rows = view.rows.length;
  const means = rowMeans(candidates, rows);
  const all = sorted === "difficulty" ? byDifficulty(means) : asRecorded(rows);
  const order =
    lowest !== undefined
      ? only(all, new Set(placesLowest(lowest)))
      : sampled(view)
        ? only(all, placesScored(candidates[0]))
        : all;
  const [low, high] = scaleOf(candidates.map(({ scores }) => scores));
  const columns = candidates.map(({ index, scores, digest }) => ({
    name: index === 0 ? "0 (seed)" : index === view.best ? `${index} (best)` : String(index),
    scores,
    failed: failedRows(digest, scores, latest.failures, latest.run),
  }));
  let missing = 0;
  let crossed = 0;
  for (const { scores, failed } of columns) {
    for (const row of order) {
      if (failed?.[row] === 1) crossed += 1;
      else if (Number.isNaN(scores[row] ?? Number.NaN)) missing += 1;
    }
  }
  return { order, means, columns, low, high, missing, failed: crossed };
}

/** Whether the search scores candidates on a sample, and a candidate has scores that show its rows. */
function sampled({ latest, candidates }: View): boolean {
  return latest.run?.sampled != null && candidates.length > 0;
}

/** Return the places of the rows on which a candidate has a score. */
function placesScored(candidate: Candidate | undefined): ReadonlySet<number> {
  const places = new Set<number>();
  candidate?.scores.forEach((each, place) => {
    if (!Number.isNaN(each)) places.add(place);
  });
  return places;
}

/** Return the part of an order with these rows. */
function only(rows: Uint32Array, places: ReadonlySet<number>): Uint32Array {
  return rows.filter((row) => places.has(row));
}

function matrixOf(pool: Pool, { latest, partial, rows, labels, candidates }: View) {
  const others: Column[] = partial.map(({ digest, scores }) => ({
    name: "\u2026",
    scores,
    failed: failedRows(digest, scores, latest.failures, latest.run),
  }));
  const { order, low, high, columns } = pool;
  const data: MapData = { bands: [columns, others], order, names: rows, labels, low, high };
  return {
    ...pool,
    data,
    columns: [...columns, ...others],
    candidates: [...candidates.map(({ index }) => index), ...others.map(() => null)],
  };
}

interface PictureProps {
  readonly matrix: Matrix;
  readonly view: View;
  /** The cell that is open beside the map. */
  readonly candidate: number | null;
  readonly row: number | null;
  readonly onOpen: (candidate: number | null, row: number) => void;
}

function Picture({ matrix, view, candidate, row, onOpen }: PictureProps) {
  const theme = useTheme();
  const canvas = useRef<HTMLCanvasElement>(null);
  const map = useRef<HeatMap | null>(null);
  const [cursor, setCursor] = useState<Cell>({ column: 0, line: 0 });

  useEffect(() => {
    const element = canvas.current;
    if (element === null) return;
    const made = new HeatMap(element, theme);
    map.current = made;
    const observer = new ResizeObserver(() => made.moveTo(made.cursor)); // a cell that is opened beside it narrows it
    observer.observe(element);
    const wheel = (event: WheelEvent) => {
      const box = element.getBoundingClientRect();
      let used = true;
      if (event.ctrlKey || event.metaKey) {
        made.zoomBy(Math.exp(-event.deltaY / 200), event.clientX - box.left, event.clientY - box.top);
      } else if (event.shiftKey) used = made.scrollBy(event.deltaY, event.deltaX);
      else used = made.scrollBy(event.deltaX, event.deltaY);
      if (used) event.preventDefault(); // else the page scrolls
    };
    element.parentElement?.addEventListener("wheel", wheel, { passive: false });
    return () => {
      element.parentElement?.removeEventListener("wheel", wheel);
      observer.disconnect();
      made.close();
    };
  }, []);
  useEffect(() => map.current?.setTheme(theme), [theme]);
  useEffect(() => map.current?.setData(matrix.data), [matrix]);
  useEffect(() => {
    const [column, line] = [matrix.candidates.indexOf(candidate), matrix.data.order.indexOf(row ?? -1)];
    if (candidate === null || column < 0 || line < 0 || map.current === null) return;
    map.current.moveTo({ column, line });
    setCursor(map.current.cursor);
  }, [candidate, row]);

  const go = (cell: Cell) => {
    const shown = map.current;
    if (shown === null) return;
    shown.moveTo(cell);
    setCursor(shown.cursor);
  };
  const enter = ({ column, line }: Cell) => {
    const place = matrix.data.order[line];
    const candidate = matrix.candidates[column];
    if (place !== undefined && candidate !== null && candidate !== undefined) onOpen(candidate, place);
  };
  const keys = (event: KeyboardEvent) => {
    const shown = map.current;
    if (shown === null) return;
    const { column, line } = shown.cursor;
    pressed({
      ArrowLeft: () => go({ column: column - 1, line }),
      ArrowRight: () => go({ column: column + 1, line }),
      ArrowUp: () => go({ column, line: line - 1 }),
      ArrowDown: () => go({ column, line: line + 1 }),
      PageUp: () => go({ column, line: line - shown.linesShown() }),
      PageDown: () => go({ column, line: line + shown.linesShown() }),
      Home: () => go({ column: 0, line: event.ctrlKey ? 0 : line }),
      End: () => go({ column: matrix.columns.length - 1, line: event.ctrlKey ? matrix.data.order.length - 1 : line }),
      "+": () => shown.zoomBy(STEP),
      "-": () => shown.zoomBy(1 / STEP),
      "0": () => shown.fit(),
      Enter: () => enter(shown.cursor),
      " ": () => enter(shown.cursor),
    })(event);
  };
  const pointer = usePointer(map, go, enter);
  return (
    <>
      <div class="row tools">
        <Zoom onZoom={(factor) => map.current?.zoomBy(factor)} onFit={() => map.current?.fit()} />
        <span class="row legend">
          score {score(matrix.data.low)} <span class="ramp" aria-hidden="true" /> {score(matrix.data.high)}
        </span>
        <Legend
          marks={[
            [MISSING, `missing (${count(matrix.missing)})`],
            ...(matrix.failed > 0 ? [[FAILED, `failed (${count(matrix.failed)})`] as const] : []),
          ]}
        />
      </div>
      <div
        class="map"
        style={{ minHeight: `${Math.max(260, heightOfNames(matrix.data.order.length))}px` }}
        role="application"
        // biome-ignore lint/a11y/noNoninteractiveTabindex: keys move the cursor
        tabIndex={0}
        aria-label="Heat map of candidates by rows. Arrow keys move, Enter opens the cell, plus and minus zoom, 0 fits."
        aria-describedby="map-cursor"
        onKeyDown={keys}
        {...pointer}
      >
        <canvas ref={canvas} />
      </div>
      <p class="readout" id="map-cursor" aria-live="polite">
        {described(matrix, view, cursor)}
      </p>
    </>
  );
}

/** A drag scrolls; a click puts the cursor on a cell and opens it. */
function usePointer(map: { readonly current: HeatMap | null }, go: (cell: Cell) => void, enter: (cell: Cell) => void) {
  const held = useRef<{ x: number; y: number; moved: boolean } | null>(null);
  return {
    onPointerDown: (event: PointerEvent) => {
      held.current = { x: event.clientX, y: event.clientY, moved: false };
      (event.currentTarget as HTMLElement).setPointerCapture(event.pointerId);
    },
    onPointerMove: (event: PointerEvent) => {
      const drag = held.current;
      if (drag === null) {
        const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
        map.current?.hover(event.clientX - box.left, event.clientY - box.top);
        return;
      }
      const [x, y] = [drag.x - event.clientX, drag.y - event.clientY];
      if (!drag.moved && Math.hypot(x, y) < 4) return;
      map.current?.scrollBy(x, y);
      held.current = { x: event.clientX, y: event.clientY, moved: true };
    },
    onPointerUp: (event: PointerEvent) => {
      const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
      const cell = map.current?.cellAt(event.clientX - box.left, event.clientY - box.top);
      if (held.current !== null && !held.current.moved && cell) {
        go(cell);
        enter(cell);
      }
      held.current = null;
    },
    onPointerLeave: () => map.current?.hover(-1, -1),
    onPointerCancel: () => {
      held.current = null;
    },
  };
}

function described(matrix: Matrix, view: View, { column, line }: Cell) {
  const place = matrix.data.order[line];
  const shown = matrix.columns[column];
  if (place === undefined || shown === undefined) return null;
  const index = matrix.candidates[column];
  const value = shown.scores[place] ?? Number.NaN;
  return (
    <>
      <Inline text={scoredRow(view, place)} length={60} /> <Inline text={view.labels[place] ?? ""} /> (place{" "}
      {count(line + 1)} of {count(matrix.data.order.length)}, mean {score(matrix.means[place])}),{" "}
      {index == null ? (
        "a proposal under evaluation"
      ) : (
        <a href={href("text", { candidate: index })}>{candidateName(index)}</a>
      )}
      : <strong>{shown.failed?.[place] === 1 ? "failed" : Number.isNaN(value) ? "missing" : score(value)}</strong>
    </>
  );
}

/** `lowest`: the candidate whose rows with the lowest score are shown alone. */
function RowsTable({ matrix, view, lowest }: { matrix: Matrix; view: View; lowest: number | null }) {
  const [page, setPage] = useState(0);
  const pages = Math.ceil(matrix.data.order.length / PAGE);
  const best = view.candidates.find(({ index }) => index === view.best);
  const rows = [...matrix.data.order.subarray(page * PAGE, (page + 1) * PAGE)].map((place) => {
    const known = view.candidates
      .map(({ scores }) => scores[place] ?? Number.NaN)
      .filter((each) => !Number.isNaN(each));
    return { place, known, highest: known.reduce((most, each) => Math.max(most, each), Number.NEGATIVE_INFINITY) };
  });
  const cell = (candidate: Candidate | undefined, row: number) =>
    candidate && <a href={href("rows", { lowest, candidate: candidate.index, row })}>{score(candidate.scores[row])}</a>;
  return (
    <section class="panel">
      {pages > 1 && (
        <div class="row tools">
          <button type="button" disabled={page === 0} onClick={() => setPage(page - 1)}>
            Previous rows
          </button>
          <span>
            page {page + 1} of {pages}
          </span>
          <button type="button" disabled={page + 1 >= pages} onClick={() => setPage(page + 1)}>
            Next rows
          </button>
        </div>
      )}
      <Table
        label="Rows"
        caption={`${counted(matrix.data.order.length, "row")}; a score opens the cell.`}
        items={rows}
        columns={[
          ["row", ({ place }) => scoredRow(view, place)],
          ["content", ({ place }) => view.labels[place]],
          ["mean", ({ place }) => score(matrix.means[place]), "number"],
          ["seed", ({ place }) => cell(view.candidates[0], place), "number"],
          ["best candidate", ({ place }) => cell(best, place), "number"],
          ["highest", ({ known, highest }) => (known.length > 0 ? score(highest) : "none"), "number"],
          [
            "candidates with it",
            ({ known, highest }) => count(known.filter((each) => each === highest).length),
            "number",
          ],
          ["missing", ({ known }) => count(view.candidates.length - known.length), "number"],
        ]}
      />
    </section>
  );
}
