/** The run's name, its state, the connection, and what to do if one of them is in trouble. */

import type { Status } from "../connection";
import { LIVE, type View } from "../state/view";
import { Badge } from "./badge";
import { Facts } from "./facts";
import { candidateName, count, counted, duration, fromTo, score, time } from "./format";
import { Notices, ofConnection } from "./notices";
import { scoreName } from "./row-name";
import { Term } from "./term";
import { Inline } from "./text";

export function Header({ view, status }: { view: View; status: Status }) {
  const { run, notices } = view.latest;
  return (
    <>
      <div class="row title">
        <Inline as="h1" text={run?.name ?? run?.run_id ?? "EvolveRPC run"} length={80} />
        {run?.name && <span class="quiet mono">{<Inline text={run.run_id} />}</span>}
        {run !== undefined && <RunBadge view={view} />}
        <ConnectionBadge status={status} />
        {run?.program && (
          <span class="quiet">
            {run.program === "program" ? "" : "program "}
            <Inline text={run.program} length={60} />, begun {time(run.started ?? run.created)}
          </span>
        )}
      </div>
      {run !== undefined && <Figures view={view} />}
      <Notices notices={[...ofConnection(view, status), ...(notices?.notices ?? [])]} />
    </>
  );
}

function RunBadge({ view }: { view: View }) {
  const { run, now, notices } = view.latest;
  if (run === undefined) return null;
  if (now?.lost) return <Badge text="optimizer lost" status="failed" />;
  if (notices?.notices.some(({ kind }) => kind === "stuck")) return <Badge text="running: no result" status="paused" />;
  const phase = run.driven && now?.phase ? `: ${now.phase}` : "";
  return <Badge text={`${run.status}${phase}`} status={run.status} />;
}

export function ConnectionBadge({ status }: { status: Status }) {
  if (status.kind === "live" || status.kind === "ended") return null;
  const text = {
    connecting: "connecting",
    lost: "connection lost, retrying",
    refused: "not connected",
    deleted: "run deleted",
    embedded: "exported file",
  }[status.kind];
  const isWell = status.kind === "connecting" || status.kind === "embedded";
  return <Badge text={text} status={isWell ? "" : "failed"} live />;
}

export function Figures({ view }: { view: View }) {
  const { now, run, spending } = view.latest;
  const { test = null, compared = null } = view.summary ?? {};
  const best = view.candidates.find(({ index }) => index === view.best);
  const [ofSeed, ofBest] = [compared?.seed ?? view.candidates[0]?.score, compared?.best ?? best?.score];
  const tied = compared === null ? view.candidates.filter((each) => each.score === best?.score).length - 1 : 0;
  const sampled = run?.sampled == null ? "" : ` (${count(run.sampled)} in the search)`;
  const isLive = view.at === LIVE;
  return (
    <Facts
      as="figures"
      facts={[
        ["test score", test && `${fromTo(score(test.seed), score(test.best))} (${test.rows})`],
        [
          `best ${scoreName(view)}`,
          best === undefined
            ? "none yet"
            : `${score(ofBest)} (${candidateName(best.index)}${tiedWith(tied)}${compared ? `, on ${compared.rows}` : ""})`,
        ],
        ["of the seed", best !== undefined && best.index !== 0 && score(ofSeed)],
        [
          `${view.onTraining ? "training" : "validation"} rows`,
          best !== undefined &&
            `${count(view.rows.length)}${sampled}${view.onTraining ? " (no validation rows were given)" : ""}`,
        ],
        ["candidates", count(view.candidates.length)],
        [
          <Term key="calls" of="metric calls" />,
          count(view.metricCalls) + (run?.budget == null ? "" : ` of ${count(run.budget)}`),
        ],
        ["cost", isLive && spending?.cost],
        [
          "ends in about",
          isLive && run?.driven && !now?.lost && now?.seconds_left != null ? duration(now.seconds_left) : null,
        ],
      ]}
    />
  );
}

function tiedWith(others: number): string {
  return others > 0 ? `, tied with ${counted(others, "other")}` : "";
}
