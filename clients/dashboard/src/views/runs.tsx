/** All runs of the store, side by side. */

import { useMemo, useState } from "preact/hooks";
import type uPlot from "uplot";
import type { RunList, RunListed } from "../generated/answers";
import { useLoaded } from "../loading";
import { axisOf, Chart, steps } from "../parts/chart";
import { time } from "../parts/format";
import { Shown } from "../parts/shown";
import { type Column, Table, wordedColumns } from "../parts/table";
import { Inline } from "../parts/text";
import { useTheme } from "../parts/theme";
import { open } from "../route";

/** Runs that are compared at once: more curves cannot be distinguished. */
const MOST = 6;
const DASHES = [[], [6, 4], [2, 3], [10, 4, 2, 4], [14, 4], [4, 2, 1, 2]];

interface Props {
  /** The run that the page shows. */
  readonly current: string | null;
  readonly onShow: (run: string) => void;
}

export function RunsView({ current, onShow }: Props) {
  const answer = useLoaded<RunList>("/api/runs");
  const [chosen, setChosen] = useState<readonly string[] | null>(null);
  return (
    <>
      <p class="about">All runs of the store, side by side: their curves, and the settings that differ.</p>
      <Shown loaded={answer}>
        {({ runs }) => {
          const others = runs.map(({ run_id }) => run_id).filter((id) => id !== current);
          const shown = chosen ?? [...(current === null ? [] : [current]), ...others.slice(0, 2)];
          const compared = runs.filter(({ run_id }) => shown.includes(run_id));
          if (runs.length === 0) return <p class="empty">The store holds no run.</p>;
          return (
            <>
              <List
                runs={runs}
                current={current}
                chosen={shown}
                onChoose={setChosen}
                onShow={(run) => {
                  onShow(run);
                  open("now");
                }}
              />
              {compared.length > 0 && <Curves runs={compared} />}
              {compared.length > 1 && <Settings runs={compared} />}
            </>
          );
        }}
      </Shown>
    </>
  );
}

interface ListProps extends Props {
  readonly runs: readonly RunListed[];
  readonly chosen: readonly string[];
  readonly onChoose: (runs: readonly string[]) => void;
}

function List({ runs, current, chosen, onChoose, onShow }: ListProps) {
  const choose = (run: string, isWanted: boolean) =>
    onChoose(isWanted ? [...chosen, run] : chosen.filter((each) => each !== run));
  return (
    <section class="panel">
      <Table
        label="Runs"
        tall
        items={runs}
        isChosen={({ run_id }) => run_id === current}
        columns={[
          [
            "run",
            (run) => (
              <>
                <button type="button" onClick={() => onShow(run.run_id)}>
                  <Inline text={run.name ?? run.run_id} length={40} />
                </button>
                {run.run_id === current && " (shown)"}
              </>
            ),
          ],
          [
            "compare",
            (run) => (
              <input
                type="checkbox"
                aria-label={`Compare ${nameOf(run)}`}
                checked={chosen.includes(run.run_id)}
                disabled={!chosen.includes(run.run_id) && chosen.length >= MOST}
                onChange={(event) => choose(run.run_id, event.currentTarget.checked)}
              />
            ),
          ],
          ...wordedColumns(Object.keys(runs[0]?.figures ?? {}), runs, (run, name) => run.figures[name]),
          ["created", (run) => time(run.created)],
        ]}
      />
    </section>
  );
}

function nameOf(run: RunListed): string {
  return run.name === null ? run.run_id : [run.name, run.program, time(run.created)].filter(Boolean).join(", ");
}

function Curves({ runs }: { runs: readonly RunListed[] }) {
  const theme = useTheme();
  const colours = [theme.accent, theme.good, theme.bad, theme.ink];
  const data = useMemo(() => joined(runs), [runs]);
  const options = useMemo(() => {
    const lines = axisOf(theme);
    return {
      legend: { show: false },
      scales: { x: { time: false } },
      axes: [
        { ...lines, label: "metric calls" },
        { ...lines, label: "best score" },
      ],
      series: [{}, ...runs.map((_, at) => steps(colours[at % colours.length] as string, DASHES[at % DASHES.length]))],
    };
  }, [runs, theme]);
  return (
    <figure class="panel">
      <h2>Best score over metric calls</h2>
      <Chart label="Best scores of the compared runs over metric calls" options={options} data={data} height={300} />
      <figcaption class="row legend">
        {runs.map((run, at) => (
          <span key={run.run_id}>
            <svg viewBox="0 0 32 12" aria-hidden="true" style={{ width: "32px" }}>
              <path
                d="M0 6H32"
                stroke={colours[at % colours.length]}
                stroke-width="2"
                stroke-dasharray={(DASHES[at % DASHES.length] as number[]).join(" ")}
              />
            </svg>
            <Inline text={nameOf(run)} length={80} />
          </span>
        ))}
      </figcaption>
    </figure>
  );
}

/** The curves over the metric calls of all of them. */
function joined(runs: readonly RunListed[]): uPlot.AlignedData {
  const calls = [...new Set(runs.flatMap(({ curve }) => curve.map(([calls]) => calls as number)))].sort(
    (a, b) => a - b,
  );
  return [
    calls,
    ...runs.map((run) => {
      const known = new Map(run.curve as [number, number][]);
      return calls.map((x) => known.get(x) ?? null);
    }),
  ] as uPlot.AlignedData;
}

function Settings({ runs }: { runs: readonly RunListed[] }) {
  const names = [...new Set(runs.flatMap(({ settings }) => Object.keys(settings)))];
  const shown = (run: RunListed, name: string) =>
    name in run.settings ? JSON.stringify(run.settings[name]) : "not set";
  const differing = names.filter((name) => new Set(runs.map((run) => shown(run, name))).size > 1);
  return (
    <section class="panel">
      <h2>Settings that differ</h2>
      {differing.length === 0 ? (
        <p>None.</p>
      ) : (
        <Table
          label="Settings that differ"
          items={differing}
          columns={[
            ["setting", (name) => name],
            ...runs.map((run): Column<string> => [nameOf(run), (name) => shown(run, name)]),
          ]}
        />
      )}
    </section>
  );
}
