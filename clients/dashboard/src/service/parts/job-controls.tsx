/** What a person may ask of a job: to pause, resume or cancel it, or to raise its budget. */

import { DialogButton } from "../../parts/dialog";
import { Form, LimitFields, stated } from "../../parts/form";
import { count, money } from "../../parts/format";
import { ProblemNotice } from "../../parts/problem";
import { useAction } from "../loading";
import type { Job } from "../schema";
import { useMayWrite } from "../session";
import { jobName } from "./names";

const ENDED = ["completed", "failed", "cancelled"];

export function hasEnded(status: string): boolean {
  return ENDED.includes(status);
}

export function JobControls({ job, onChange }: { job: Job; onChange: () => void }) {
  const action = useAction();
  if (!useMayWrite() || hasEnded(job.status)) return null;
  const path = `/job/${encodeURIComponent(job.job_id)}`;
  const name = jobName(job);
  const ask = async (what: "pause" | "resume" | "cancel", close?: () => void) => {
    if ((await action.send("POST", `${path}/${what}`)) !== null) close?.();
    onChange();
  };
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
      <DialogButton label="Raise budget" title="Raise the budget" about={name}>
        {(close) => <Budget job={job} onDone={() => [close(), onChange()]} />}
      </DialogButton>
      <DialogButton label="Cancel" title="Cancel the job" about={name}>
        {(close) => (
          <Form {...action} submit="Cancel the job" onSubmit={() => ask("cancel", close)}>
            <p>It ends for good. What it has found is kept, and stays visible here; it makes no version.</p>
          </Form>
        )}
      </DialogButton>
      <ProblemNotice problem={action.problem} />
    </fieldset>
  );
}

function Budget({ job, onDone }: { job: Job; onDone: () => void }) {
  const { send, ...action } = useAction();
  const calls = job.max_metric_calls === null ? "no limit" : `of ${count(job.max_metric_calls)}`;
  return (
    <Form
      {...action}
      submit="Set the limits"
      onSubmit={async (given) => {
        if ((await send("PATCH", `/job/${encodeURIComponent(job.job_id)}`, stated(given))) !== null) onDone();
      }}
    >
      <LimitFields
        hints={{
          max_metric_calls: `${count(job.metric_calls)} used, ${calls}`,
          max_cost_usd: job.max_cost_usd === null ? "no limit" : `at most ${money(job.max_cost_usd)}`,
        }}
      />
    </Form>
  );
}
