/** Why a job failed, was paused or cancelled, with the findings of its check. */

import { Block, Inline } from "../../parts/text";
import type { Job } from "../schema";

interface Step {
  readonly name?: unknown;
  readonly verdict?: unknown;
  readonly message?: unknown;
  readonly details?: unknown;
}

export function JobFailure({ job }: { job: Job }) {
  if (job.failure === null) {
    if (job.reason === null || job.status === "completed" || job.status === "running") return null;
    return <Inline as="p" class="notices" text={job.reason} length={600} />;
  }
  const { kind, message, details, findings, check } = job.failure as Record<string, unknown>;
  const steps = stepsOf(check).filter(({ verdict }) => verdict === "failed" || verdict === "warning");
  const lines = Array.isArray(findings) ? findings.filter((each) => typeof each === "string") : [];
  return (
    <section class="notices failure" aria-label="Why the job failed">
      <h2>{kind === "preflight" ? "The check failed: nothing else was paid for" : "The job failed"}</h2>
      {steps.length > 0 ? (
        <ul>
          {steps.map((step) => (
            <li key={String(step.name)}>
              <Inline as="strong" text={`${step.name}: ${step.verdict}`} />{" "}
              <Inline text={String(step.message ?? "")} length={1_000} />
              {typeof step.details === "string" && <Block text={step.details} label={`Details of ${step.name}`} />}
            </li>
          ))}
        </ul>
      ) : (
        <Block text={String(message ?? job.reason ?? "unknown")} label="Reason" />
      )}
      {typeof details === "string" && (
        <details>
          <summary>Details</summary>
          <Block text={details} label="Details" />
        </details>
      )}
      {lines.length > 0 && <Block text={lines.join("\n")} label="Findings" />}
    </section>
  );
}

function stepsOf(check: unknown): readonly Step[] {
  const steps = typeof check === "object" && check !== null && "steps" in check ? check.steps : null;
  return Array.isArray(steps) ? (steps as Step[]) : [];
}
