/** What a person may ask of a job: to pause, resume or cancel it, or to raise its budget. */

import { RequestButton, useAction } from "../../parts/action";
import { LimitFields, stated } from "../../parts/form";
import { count, money } from "../../parts/format";
import { ProblemNotice } from "../../parts/problem";
import type { Job } from "../schema";
import { useMayWrite } from "../session";
import { DeleteButton } from "./delete-button";
import { jobName } from "./names";

const ENDED = ["completed", "success", "partial", "failed", "cancelled"];

export function hasEnded(status: string): boolean {
  return ENDED.includes(status);
}

interface Props {
  readonly job: Job;
  readonly onChange: () => void;
  /** After it was deleted. */
  readonly onDelete?: () => void;
}

export function JobControls({ job, onChange, onDelete = onChange }: Props) {
  const action = useAction();
  const path = `/job/${encodeURIComponent(job.job_id)}`;
  const name = jobName(job);
  if (!useMayWrite()) return null;
  if (hasEnded(job.status)) {
    const note = "Its run and its log are deleted; a version that it made stays.";
    return (
      <fieldset class="row controls" aria-label={`Controls of ${name}`}>
        <DeleteButton what="the job" about={name} path={path} note={note} onDone={onDelete} />
      </fieldset>
    );
  }
  const ask = async (what: "pause" | "resume") => {
    await action.send("POST", `${path}/${what}`);
    onChange();
  };
  const calls = job.max_metric_calls === null ? "no limit" : `of ${count(job.max_metric_calls)}`;
  const isPaused = job.status === "paused" || job.wanted === "pause";
  return (
    <fieldset class="row controls" aria-label={`Controls of ${name}`}>
      <button
        type="button"
        disabled={action.busy}
        aria-label={`${isPaused ? "Resume" : "Pause"}: ${name}`}
        onClick={() => ask(isPaused ? "resume" : "pause")}
      >
        {isPaused ? "Resume" : "Pause"}
      </button>
      <RequestButton
        label="Raise budget"
        title="Raise the budget"
        about={name}
        submit="Set the limits"
        asked={(given) => ["PATCH", path, stated(given)]}
        onDone={onChange}
      >
        <LimitFields
          hints={{
            max_metric_calls: `${count(job.metric_calls)} used, ${calls}`,
            max_cost_usd: job.max_cost_usd === null ? "no limit" : `at most ${money(job.max_cost_usd)}`,
          }}
        />
      </RequestButton>
      <RequestButton
        label="Cancel"
        title="Cancel the job"
        about={name}
        submit="Cancel the job"
        asked={() => ["POST", `${path}/cancel`]}
        onDone={onChange}
      >
        <p>It ends for good. What it has found is kept, and stays visible here; it makes no version.</p>
      </RequestButton>
      <ProblemNotice problem={action.problem} />
    </fieldset>
  );
}
