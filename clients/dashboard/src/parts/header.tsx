/** The run's name, its state, the connection, and what to do if one of them is in trouble. */

import type { Status } from "../connection";
import type { CommandHint } from "../generated/events";
import { NextStep } from "../panels/next-step";
import { Stuck } from "../panels/stuck";
import { href } from "../route";
import { sameRun } from "../state/command";
import { failuresFirst } from "../state/failing";
import { headlineOf } from "../state/headline";
import { stallOf } from "../state/stall";
import { LIVE, type View } from "../state/view";
import { Badge } from "./badge";
import { Commands } from "./commands";
import { Facts } from "./facts";
import { candidateName, count, counted, duration, score, spent } from "./format";
import { scoreName } from "./score-name";
import { Term } from "./term";
import { Inline } from "./text";

export function Header({ view, status }: { view: View; status: Status }) {
  const { run, now } = view.latest;
  const stall = status.kind === "live" ? stallOf(view) : null;
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
            <Inline text={run.program} length={60} />
          </span>
        )}
      </div>
      {run !== undefined && <Figures view={view} />}
      <Notices view={view} status={status} lost={now?.lost ?? false} />
      {stall !== null && <Stuck view={view} stall={stall} />}
    </>
  );
}

function RunBadge({ view }: { view: View }) {
  const { run, now } = view.latest;
  if (run === undefined) return null;
  if (now?.lost) return <Badge text="optimizer lost" status="failed" />;
  const stall = stallOf(view);
  if (stall !== null) return <Badge text={`running: no result for ${duration(stall.seconds)}`} status="paused" />;
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
  const best = view.candidates.find(({ index }) => index === view.best);
  const headline = headlineOf(view);
  const tied =
    best === undefined || headline?.left ? 0 : view.candidates.filter((each) => each.score === best.score).length - 1;
  const left = headline?.left ? `, ${count(headline.left)} more after it` : "";
  const sampled = run?.sampled == null ? "" : ` (${count(run.sampled)} in the search${left})`;
  const isLive = view.at === LIVE;
  return (
    <Facts
      as="figures"
      facts={[
        [
          `best ${scoreName(view)}`,
          best === undefined || headline === null
            ? "none yet"
            : `${score(headline.best)} (${candidateName(best.index)}${tiedWith(tied)})`,
        ],
        ["of the seed", headline !== null && best?.index !== 0 && score(headline.seed)],
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
        [
          "cost",
          isLive && spent(spending?.cost_usd ?? now?.spent_usd, spending?.unpriced ?? 0, spending?.unreported ?? 0),
        ],
        [
          "ends in about",
          isLive && run?.driven && !now?.lost && stallOf(view) === null && now?.forecast
            ? duration(now.forecast.seconds_left)
            : null,
        ],
      ]}
    />
  );
}

function tiedWith(others: number): string {
  return others > 0 ? `, tied with ${counted(others, "other")}` : "";
}

function Notices({ view, status, lost }: { view: View; status: Status; lost: boolean }) {
  const { run, store } = view.latest;
  const commands = run?.commands ?? [];
  const watch = sameRun("watch", commands);
  const notices = [];
  if (status.kind === "refused") notices.push(<p key="refused">{status.message}</p>);
  if (status.kind === "deleted" || store?.gone) {
    notices.push(
      run === undefined ? (
        <p key="deleted">
          The store has no such run: it was deleted, or its id is another one. <a href={href("runs")}>All runs</a> of
          the store.
        </p>
      ) : (
        <p key="deleted">The run was deleted from its store. What is shown is what this page had read.</p>
      ),
    );
  }
  if (status.kind === "lost") {
    notices.push(
      <p key="lost">
        The server of this page does not answer; the page asks again by itself. If <code>evolverpc watch</code> has
        ended, start it again
        {watch && (
          <>
            {" "}
            with <code>{watch}</code>
          </>
        )}{" "}
        and open the address that it prints. The run itself does not depend on this page.
      </p>,
    );
  }
  if (store?.problem) {
    notices.push(
      <p key="store">
        The store cannot be read: <Inline text={store.problem} length={500} />
      </p>,
    );
  }
  if (lost) {
    notices.push(
      <div key="killed">
        The optimizer sends no heartbeat: its process was killed, or it is cut off from the store. All results are kept.
        <Commands commands={[...resume(commands), ...commands]} />
      </div>,
    );
  } else if (run && !run.driven && (run.status === "failed" || run.status === "paused" || run.status === "running")) {
    const { reason } = run;
    notices.push(
      <div key="ended">
        The run is {run.status === "running" ? "not driven by any process" : <Inline text={run.status} />}
        {reason && (
          <>
            : <Inline text={reason.split("\n")[0] ?? ""} length={2_000} />
          </>
        )}
        {run.status !== "running" && failuresFirst(view) ? <NextStep view={view} /> : <Commands commands={commands} />}
      </div>,
    );
  }
  if (notices.length === 0) return null;
  return (
    <div class="notices" role="alert">
      {notices}
    </div>
  );
}

/** The command that continues a lost run, if it is not among these. */
function resume(commands: readonly CommandHint[]): CommandHint[] {
  const command = sameRun("resume", commands);
  if (command === undefined || commands.some(({ command }) => command.includes(" resume "))) return [];
  return [{ command, what: "continue the run, once its lease has ended" }];
}
