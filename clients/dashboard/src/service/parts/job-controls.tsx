/** What a person may ask of a job: to pause, resume or cancel it, or to raise its budget. */

import { useState } from "preact/hooks";
import { count, money } from "../../parts/format";
import { useAction } from "../loading";
import type { Job } from "../schema";
import { useMayWrite } from "../session";
import { DialogButton } from "./dialog";
import { TextField } from "./field";
import { jobName } from "./names";
import { ProblemNotice } from "./shown";

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
    <fieldset class="controls" aria-label={`Controls of ${name}`}>
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
          <>
            <p>It ends for good. What it has found is kept, and stays visible here; it makes no version.</p>
            <p class="field">
              <button type="button" class="primary" disabled={action.busy} onClick={() => ask("cancel", close)}>
                Cancel the job
              </button>
            </p>
          </>
        )}
      </DialogButton>
      <ProblemNotice problem={action.problem} />
    </fieldset>
  );
}

function Budget({ job, onDone }: { job: Job; onDone: () => void }) {
  const { busy, problem, send } = useAction();
  const [calls, setCalls] = useState("");
  const [usd, setUsd] = useState("");
  const [seconds, setSeconds] = useState("");
  const given = Object.entries({ max_metric_calls: calls, max_cost_usd: usd, max_seconds: seconds }).filter(
    ([, text]) => text.trim() !== "",
  );
  return (
    <form
      onSubmit={async (event) => {
        event.preventDefault();
        const body = Object.fromEntries(given.map(([name, text]) => [name, Number(text)]));
        if ((await send("PATCH", `/job/${encodeURIComponent(job.job_id)}`, body)) !== null) onDone();
      }}
    >
      <p>The new limits; an empty one stays as it is.</p>
      <TextField
        label="Metric calls"
        name="max_metric_calls"
        problem={problem}
        hint={`${count(job.metric_calls)} used, ${job.max_metric_calls === null ? "no limit" : `of ${count(job.max_metric_calls)}`}`}
        value={calls}
        onChange={setCalls}
        input={{ type: "number", min: 1, step: 1 }}
      />
      <TextField
        label="Cost in US dollars"
        name="max_cost_usd"
        problem={problem}
        hint={job.max_cost_usd === null ? "no limit" : `at most ${money(job.max_cost_usd)}`}
        value={usd}
        onChange={setUsd}
        input={{ type: "number", min: 0, step: "any" }}
      />
      <TextField
        label="Seconds"
        name="max_seconds"
        problem={problem}
        value={seconds}
        onChange={setSeconds}
        input={{ type: "number", min: 1, step: "any" }}
      />
      {problem?.errors.length === 0 && <ProblemNotice problem={problem} />}
      <p class="field">
        <button type="submit" class="primary" disabled={busy || given.length === 0}>
          Set the limits
        </button>
      </p>
    </form>
  );
}
