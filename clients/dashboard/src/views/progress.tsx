/** How the best score rose with what it took, and what was tried on the way. */

import { useMemo, useState } from "preact/hooks";
import type uPlot from "uplot";
import type { Summary } from "../generated/events";
import { axisOf, Chart, steps } from "../parts/chart";
import { Choice } from "../parts/choice";
import { candidateName, counted, money, score, time } from "../parts/format";
import { Legend } from "../parts/legend";
import { scoreName, selectingRow } from "../parts/row-name";
import { type Theme, useTheme } from "../parts/theme";
import { href, open } from "../route";
import { type Axis, type Progress, progress } from "../state/progress";
import type { View } from "../state/view";
import type { ViewProps } from "./run";

const AXES = [
  ["calls", "metric calls"],
  ["time", "time"],
  ["cost", "cost"],
] as const;

/** Height of the strip below the plot in which proposals that were not kept are marked, a lane for each outcome. */
const STRIP = 36;
const LANES: Record<string, number> = { rejected: 0, refused: 0, raced_out: 1 };
const LANE_NAMES = ["rejected", "lost race", "other"];
const LANE_COLOURS = ["bad", "ink", "quiet"] as const;
/** Marks beyond which they become transparent. */
const CROWD = 150;

export function ProgressView({ view }: ViewProps) {
  const [axis, setAxis] = useState<Axis>("calls");
  const found = useMemo(() => progress(view, axis), [view, axis]);
  return (
    <>
      <p class="about">
        How the best score on the {selectingRow(view)}s rose with metric calls, time or money, and over metric calls
        which proposals were rejected or lost their race.
      </p>
      <div class="row tools">
        <Choice legend="Over" options={AXES} value={axis} onChange={setAxis} />
      </div>
      {view.candidates.length === 0 ? (
        <p class="empty">
          No candidate yet: the first point is the seed, once it is scored on all {selectingRow(view)}s.
        </p>
      ) : (
        <Plot view={view} found={found} axis={axis} />
      )}
    </>
  );
}

function Plot({ view, found, axis }: { view: View; found: Progress; axis: Axis }) {
  const theme = useTheme();
  const [near, setNear] = useState<number | null>(null);
  const data = useMemo(() => columns(found), [found]);
  const estimate = view.summary;
  const current = useMemo(() => ({ found, estimate }), []);
  Object.assign(current, { found, estimate }); // the plot stays
  const options = useMemo(
    () => plotOptions(theme, axis, scoreName(view), current, setNear),
    [theme, axis, view.onTraining],
  );
  const point = near === null ? undefined : found.points[near];
  if (found.points.length === 0) {
    return (
      <p class="empty">
        The run did not record {axis === "time" ? "when candidates were found" : "what candidates cost"}.
      </p>
    );
  }
  return (
    <figure class="panel">
      <Chart
        label={`Best score over ${AXES.find(([name]) => name === axis)?.[1]}; the list of the Tree view has the same figures`}
        options={options}
        data={data}
      />
      <p class="readout">
        {point === undefined ? (
          <span class="quiet">Point at a candidate; a click opens its text.</span>
        ) : (
          <>
            <a href={href("text", { candidate: point.candidate.index })}>{candidateName(point.candidate.index)}</a>:{" "}
            {score(point.candidate.score)}, found after {counted(point.candidate.metric_calls, "metric call")}
            {point.candidate.found !== null && `, ${time(point.candidate.found)}`}
            {point.candidate.cost_usd !== null && `, ${money(point.candidate.cost_usd)}`}
          </>
        )}
      </p>
      <Legend marks={marks(axis === "calls", estimate?.low != null)} />
      {found.missing > 0 && <p class="quiet">{counted(found.missing, "candidate")} without a value on this axis.</p>}
    </figure>
  );
}

/** The points, and the best score to the end of the run, where no candidate is. */
function columns({ points, end }: Progress): uPlot.AlignedData {
  const last = points.at(-1);
  const rest = last !== undefined && end !== null && end > last.x ? [{ x: end, best: last.best, candidate: null }] : [];
  const all = [...points, ...rest];
  return [all.map(({ x }) => x), all.map(({ best }) => best), all.map(({ candidate }) => candidate?.score ?? null)];
}

function plotOptions(
  theme: Theme,
  axis: Axis,
  scored: string,
  current: { readonly found: Progress; readonly estimate: Summary | undefined },
  onNear: (point: number | null) => void,
): Omit<uPlot.Options, "width" | "height"> {
  const lines = axisOf(theme);
  return {
    legend: { show: false },
    padding: [12, 34, STRIP, 0],
    cursor: { drag: { x: true, y: false }, points: { size: 9 } },
    scales: {
      x: { time: axis === "time" },
      y: { range: (_plot, low, high) => range(low, high, current.estimate) },
    },
    axes: [
      {
        ...lines,
        label: axis === "time" ? "time at which a candidate was found" : axis === "cost" ? "cost" : "metric calls",
        space: 80,
        ...(axis === "cost" ? { values: (_plot, values) => values.map((value) => money(value)) } : {}),
      },
      { ...lines, label: scored, values: (_plot, values) => values.map((value) => score(value)) },
    ],
    series: [
      {},
      { label: "best", ...steps(theme.accent) },
      { label: "candidates", stroke: theme.good, paths: () => null, points: { show: true, size: 6, fill: theme.good } },
    ],
    hooks: {
      draw: [(plot) => drawMarks(plot, current.found, current.estimate, theme)],
      setCursor: [(plot) => onNear(plot.cursor.idx ?? null)],
      ready: [
        (plot) =>
          plot.over.addEventListener("click", () => {
            const point = plot.cursor.idx == null ? undefined : current.found.points[plot.cursor.idx];
            if (point !== undefined) open("text", { candidate: point.candidate.index });
          }),
      ],
    },
  };
}

function range(low: number, high: number, estimate: Summary | undefined): [number, number] {
  const least = Math.min(low, estimate?.low ?? low);
  const most = Math.max(high, estimate?.high ?? high);
  const room = (most - least) * 0.08 || 0.1;
  return [least - room, most + room];
}

/** Mark proposals that were not kept below the plot, in a lane for each outcome, and draw the estimate's interval. */
function drawMarks(plot: uPlot, { points, marks }: Progress, estimate: Summary | undefined, theme: Theme): void {
  const { ctx } = plot;
  const unit = devicePixelRatio;
  const top = plot.height - STRIP + 6;
  const size = 3.5 * unit;
  ctx.save();
  ctx.lineWidth = 1.4 * unit;
  ctx.globalAlpha = Math.max(0.2, Math.min(1, CROWD / marks.length));
  const lanes = new Set<number>();
  for (const { x, proposal } of marks) {
    const lane = LANES[proposal.outcome] ?? 2;
    const left = plot.valToPos(x, "x", true);
    if (left < plot.bbox.left || left > plot.bbox.left + plot.bbox.width) continue;
    const y = (top + 11 * lane) * unit;
    ctx.fillStyle = theme[LANE_COLOURS[lane] as "bad" | "ink" | "quiet"];
    lanes.add(lane);
    ctx.fillRect(left - unit, y - size, 2 * unit, 2 * size);
  }
  ctx.globalAlpha = 1;
  ctx.font = `${10 * unit}px system-ui, sans-serif`;
  ctx.textAlign = "right";
  ctx.textBaseline = "middle";
  ctx.fillStyle = theme.quiet;
  for (const lane of lanes)
    ctx.fillText(LANE_NAMES[lane] as string, plot.bbox.left - 4 * unit, (top + 11 * lane) * unit);
  const best = points.find(({ candidate }) => candidate.index === estimate?.best);
  if (best !== undefined && estimate?.low != null && estimate.high != null) {
    const x = plot.valToPos(best.x, "x", true);
    const [top, bottom] = [estimate.high, estimate.low].map((value) => plot.valToPos(value, "y", true));
    ctx.strokeStyle = theme.ink;
    ctx.beginPath();
    ctx.moveTo(x, top as number);
    ctx.lineTo(x, bottom as number);
    for (const end of [top, bottom]) {
      ctx.moveTo(x - 5 * unit, end as number);
      ctx.lineTo(x + 5 * unit, end as number);
    }
    ctx.stroke();
  }
  ctx.restore();
}

function mark(colour: string, lane: number) {
  return <path key={lane} d={`M8 ${4 * lane}V${4 * lane + 4}`} stroke={`var(--${colour})`} stroke-width="2" />;
}

function marks(withProposals: boolean, withEstimate: boolean): Parameters<typeof Legend>[0]["marks"] {
  return [
    [<path key="best" d="M0 9H8V3H16" fill="none" stroke="var(--accent)" stroke-width="2" />, "best so far"],
    [<circle key="kept" cx="8" cy="6" r="3.5" fill="var(--good)" />, "kept candidate"],
    ...(withProposals ? NOT_KEPT : []),
    ...(withEstimate ? [ESTIMATE] : []),
  ];
}

const NOT_KEPT = [
  [mark("bad", 0), "rejected"],
  [mark("ink", 1), "lost its race"],
  [mark("quiet", 2), "no new text, or not decided"],
] as const;

const ESTIMATE = [
  <path key="estimate" d="M8 1V11M5 1H11M5 11H11" stroke="var(--ink)" />,
  "95 % interval of the best score without the luck of the choice",
] as const;
