/** One job: its state, what may be asked of it, and the views of its run as the page of a single run has them. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Followed, Status } from "../../connection";
import { useLoaded } from "../../loading";
import { useKnown } from "../../observed";
import { Badge } from "../../parts/badge";
import { ConnectionBadge, Figures } from "../../parts/header";
import { Notices } from "../../parts/notices";
import { Loading, Shown } from "../../parts/shown";
import { Tabs } from "../../parts/tabs";
import { Inline } from "../../parts/text";
import { Travel } from "../../parts/travel";
import { SIGNED_OUT } from "../../request";
import { href, NAMES, type Place, routeOf, VIEWS } from "../../route";
import { LIVE, viewAt } from "../../state/view";
import { EventStore } from "../../store";
import { RunView } from "../../views/run";
import { JobControls } from "../parts/job-controls";
import { JobFailure } from "../parts/job-failure";
import { jobName } from "../parts/names";
import { viewAddress } from "../place";
import type { Job, Schema } from "../schema";
import { LogView } from "./log";

const TABS: readonly (readonly [string, string])[] = [
  ...VIEWS.filter((name) => name !== "runs").map((name) => [href(name), NAMES[name]] as const),
  ["#/log", "Log"],
];
const EVERY_MS = 15_000;

export function JobPage({ id, place }: { id: string; place: Place }) {
  const store = useMemo(() => new EventStore(), []);
  useEffect(() => {
    store.follow(eventsOfJob(id));
    return () => store.leave();
  }, [store, id]);
  const { state, status } = useKnown(store);
  const event = (state.latest as { job?: Schema<"JobEvent"> }).job ?? null;
  useEffect(() => {
    if (status.kind === "refused") dispatchEvent(new Event(SIGNED_OUT));
  }, [status.kind]);
  const loaded = useLoaded<Job>(`/job/${encodeURIComponent(id)}`, { everyMs: EVERY_MS });
  const [at, setAt] = useState(LIVE);
  const view = useMemo(() => viewAt(state, at), [state, at]);
  const last = useRef<string | null>(null);
  useEffect(() => {
    const now = event === null ? null : `${event.status} ${event.wanted}`;
    if (last.current !== null && now !== null && now !== last.current) loaded.reload();
    last.current = now;
  }, [event, loaded.reload]);

  const named = place.name === "log" ? "log" : routeOf(place).view;
  const chosen = named === "runs" ? "now" : named;
  const api = `/job/${encodeURIComponent(id)}`;
  return (
    <Shown loaded={loaded}>
      {(read) => {
        const job: Job = event === null ? read : { ...read, ...event.progress, ...event };
        return (
          <>
            <div class="row view-title">
              <Inline as="h1" text={jobName(job)} length={80} />
              <Badge text={job.status} />
              {job.status === "running" && (
                <Inline as="span" class="quiet" text={job.wanted === "run" ? job.phase : `${job.wanted} asked for`} />
              )}
              <ConnectionBadge status={status} />
              <JobControls job={job} onChange={loaded.reload} onDelete={() => location.assign(viewAddress("jobs"))} />
            </div>
            <p class="quiet">
              <Inline text={job.repo_url} length={200} />
              {job.ref !== null && (
                <>
                  {" "}
                  at <Inline text={job.ref} length={80} />
                </>
              )}
              {job.program_id !== null && (
                <>
                  {" \u00b7 "}
                  <a href={viewAddress("version", { id: job.program_id })}>the version it made</a>
                </>
              )}
            </p>
            {view.latest.run !== undefined && <Figures view={view} />}
            <Notices notices={view.latest.notices?.notices.filter(({ kind }) => kind !== "stopped") ?? []} />
            <JobFailure job={job} />
            <Tabs class="tabs run" label="Views of the job" views={TABS} current={`#/${chosen}`} />
            {chosen === "log" ? (
              <LogView id={id} status={job.status} />
            ) : view.latest.run === undefined ? (
              <NoRun job={job} status={status} problem={view.latest.store?.problem ?? null} />
            ) : (
              <>
                <RunView name={chosen} view={view} params={place.params} api={api} />
                <footer class="row travel">
                  <Travel end={view.latest.position?.end ?? 0} view={view} onChange={setAt} />
                </footer>
              </>
            )}
          </>
        );
      }}
    </Shown>
  );
}

/** The events of a job are its own state, beside those of its run. */
function eventsOfJob(id: string): Followed {
  const path = `/job/${encodeURIComponent(id)}`;
  return {
    events: (last) => `${path}/stream${last ? `?after=${encodeURIComponent(last)}` : ""}`,
    status: path,
    refused: "You are signed out.",
  };
}

const NOT_LOADING: readonly Status["kind"][] = ["ended", "refused", "deleted"];

/** Shown until the first event of the run arrives, and if the job has no run. `problem`: why it cannot be read. */
function NoRun({ job, status, problem }: { job: Job; status: Status; problem: string | null }) {
  const hasRun = job.attempts > 0 && job.phase !== "queued";
  if (problem === null && hasRun && !NOT_LOADING.includes(status.kind)) return <Loading />;
  return (
    <p class="empty">
      {problem !== null ? (
        <>
          Not shown: <Inline text={problem} length={400} />.
        </>
      ) : job.status === "pending" ? (
        "The job waits; its run is shown here once it has begun."
      ) : job.status === "running" ? (
        "The program's sandbox is started and the program is checked; its run is shown here once that has ended."
      ) : (
        "The job has no run to show."
      )}{" "}
      <a href="#/log">The log</a> has what was printed.
    </p>
  );
}
