/** All jobs: how far each is, what it has found and cost, and what may be asked of it. */

import { useList } from "../../loading";
import { Badge } from "../../parts/badge";
import { Facts } from "../../parts/facts";
import { count, money, score, time } from "../../parts/format";
import { List } from "../../parts/shown";
import { Inline } from "../../parts/text";
import { usePlace } from "../../route";
import { Filters } from "../parts/filters";
import { hasEnded, JobControls } from "../parts/job-controls";
import { jobName, repositoryName } from "../parts/names";
import { jobAddress, viewAddress } from "../place";
import type { Job } from "../schema";
import { useMayWrite } from "../session";

const EVERY_MS = 4_000;
const STATUSES: Record<string, readonly string[]> = {
  all: [],
  unfinished: ["pending", "running", "paused"],
  completed: ["completed"],
  "failed or cancelled": ["failed", "cancelled"],
};

export function JobsView() {
  const { params } = usePlace();
  const mayWrite = useMayWrite();
  const chosen = Object.keys(STATUSES).find((name) => name === params.get("show")) ?? "all";
  const query = (STATUSES[chosen] ?? []).map((status) => `status=${status}`).join("&");
  const list = useList<Job>(`/jobs${query ? `?${query}` : ""}`, EVERY_MS);
  return (
    <>
      <div class="row view-title">
        <h1>Jobs</h1>
        {mayWrite && (
          <a class="button primary" href={viewAddress("new")}>
            New optimization
          </a>
        )}
      </div>
      <Filters label="Which jobs" view="jobs" names={Object.keys(STATUSES)} current={chosen} />
      <List list={list} empty={<Empty filtered={chosen !== "all"} />}>
        {(jobs) => (
          <ul class="cards">
            {jobs.map((job) => (
              <JobCard key={job.job_id} job={job} onChange={list.reload} />
            ))}
          </ul>
        )}
      </List>
    </>
  );
}

function Empty({ filtered }: { filtered: boolean }) {
  const mayWrite = useMayWrite();
  if (filtered) return <p>No job has this status.</p>;
  return (
    <p>
      No job yet. {mayWrite ? "Connect a repository, then begin: " : "Jobs that others begin are listed here."}
      {mayWrite && <a href={viewAddress("repositories")}>Repositories</a>}
    </p>
  );
}

function JobCard({ job, onChange }: { job: Job; onChange: () => void }) {
  const seed = job.seed_score === null ? "" : `${score(job.seed_score)} \u2192 `;
  const limit = job.max_cost_usd === null ? "" : ` of ${money(job.max_cost_usd)}`;
  return (
    <li class="panel card">
      <div class="row">
        <h2>
          <a href={jobAddress(job.job_id, job.status === "completed" ? "result" : "now")}>
            <Inline text={jobName(job)} length={80} />
          </a>
        </h2>
        <Badge text={job.status} />
        {!hasEnded(job.status) && job.wanted !== "run" && job.status !== "paused" && (
          <span class="quiet">{job.wanted} asked for</span>
        )}
        {job.status === "running" && <Inline as="span" class="quiet" text={job.phase} />}
      </div>
      <Progress job={job} />
      <Facts
        as="figures"
        facts={[
          ["score", job.best_score === null ? "none yet" : seed + score(job.best_score)],
          ["candidates", count(job.candidates)],
          ["cost", money(job.cost_usd) + limit],
          ["repository", repositoryName(job.repo_url)],
          ["submitted", time(job.created_at)],
        ]}
        length={60}
      />
      {job.reason !== null && job.status !== "completed" && (
        <p class={job.status === "failed" ? "bad" : "quiet"}>
          <Inline text={job.reason} length={240} />
        </p>
      )}
      <div class="row card-foot">
        <JobControls job={job} onChange={onChange} />
        {job.program_id !== null && <a href={viewAddress("version", { id: job.program_id })}>The version it made</a>}
      </div>
    </li>
  );
}

/** Metric calls of the budget, as a bar too. */
export function Progress({ job }: { job: Job }) {
  const share = job.max_metric_calls ? Math.min(1, job.metric_calls / job.max_metric_calls) : null;
  return (
    <div class="row">
      <span>
        {count(job.metric_calls)}
        {job.max_metric_calls !== null && ` of ${count(job.max_metric_calls)}`} metric calls
      </span>
      {share !== null && <progress value={share} aria-hidden="true" />}
    </div>
  );
}
