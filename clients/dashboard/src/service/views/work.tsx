/** Steps and batches: the list of each, and the page of one with its results and what to do next. */

import { useList, useLoaded } from "../../loading";
import { RequestButton } from "../../parts/action";
import { Badge } from "../../parts/badge";
import { Facts } from "../../parts/facts";
import { count, duration, money, score, time } from "../../parts/format";
import { List, Shown } from "../../parts/shown";
import { type Column, Table } from "../../parts/table";
import { Block } from "../../parts/text";
import { DeleteButton } from "../parts/delete-button";
import { Filters } from "../parts/filters";
import { hasEnded } from "../parts/job-controls";
import { viewAddress } from "../place";
import type { Schema } from "../schema";
import { useMayWrite } from "../session";
import { LogView } from "./log";

type Step = Schema<"StepSummary">;
type Batch = Schema<"BatchSummary">;
type Run = Schema<"RunView">;

const API = { step: "/execute_step", batch: "/api/internal/rollouts/batch" } as const;
const EVERY_MS = 4_000;

export function WorkView({ params }: { params: URLSearchParams }) {
  const [step, batch] = [params.get("step"), params.get("batch")];
  if (step !== null) return <StepPage id={step} />;
  if (batch !== null) return <BatchPage id={batch} />;
  const chosen = params.get("show") === "batches" ? "batches" : "steps";
  return (
    <>
      <h1>Steps and batches</h1>
      <p class="about">
        A step changes a version once and makes another one; a batch runs a version on rows. Programs begin both, by{" "}
        <code>POST {chosen === "steps" ? API.step : API.batch}</code>.
      </p>
      <Filters label="Which kind" view="work" names={["steps", "batches"]} current={chosen} />
      {chosen === "steps" ? <Steps /> : <Batches />}
    </>
  );
}

function Steps() {
  const list = useList<Step>(API.step, EVERY_MS);
  return (
    <List list={list} empty={<p>No step yet.</p>}>
      {(steps) => (
        <Table
          label="Steps"
          items={steps}
          columns={[
            ["begun", (each) => <a href={viewAddress("work", { step: each.step_id })}>{time(each.created_at)}</a>],
            ["status", (each) => <Badge text={each.status} />],
            ["version", ({ program_id }) => program_id],
            ["cost", (each) => money(each.cost_usd), "number"],
            ["reason", ({ error, reason }) => error ?? reason ?? ""],
          ]}
        />
      )}
    </List>
  );
}

function Batches() {
  const list = useList<Batch>(API.batch, EVERY_MS);
  return (
    <List list={list} empty={<p>No batch yet.</p>}>
      {(batches) => (
        <Table
          label="Batches"
          items={batches}
          columns={[
            ["begun", (each) => <a href={viewAddress("work", { batch: each.batch_id })}>{time(each.created_at)}</a>],
            ["status", (each) => <Badge text={each.status} />],
            ["tasks", (each) => count(each.progress.total), "number"],
            ["failed", (each) => count(each.progress.failed), "number"],
            ["pending", (each) => count(each.progress.pending), "number"],
            ["cost", (each) => money(each.cost_usd), "number"],
            ["reason", ({ reason }) => reason ?? ""],
          ]}
        />
      )}
    </List>
  );
}

function useWork<View>(kind: keyof typeof API, id: string) {
  return useLoaded<View>(`${API[kind]}/${encodeURIComponent(id)}`, { everyMs: EVERY_MS });
}

function StepPage({ id }: { id: string }) {
  const loaded = useWork<Schema<"StepView">>("step", id);
  return (
    <Shown loaded={loaded}>
      {(step) => (
        <>
          <Title kind="step" id={id} status={step.status} onChange={loaded.reload} />
          <section class="panel">
            <Facts
              facts={[
                [
                  "made",
                  step.status === "success" && <VersionLink id={step.program_id} what="promote or deliver it" />,
                ],
                ["from", step.parent_program_id !== null && <VersionLink id={step.parent_program_id} />],
                ["why not", step.error],
                ["change", step.summary],
                ...timesOf(step),
              ]}
            />
          </section>
          <Results
            items={step.pipeline_outputs}
            first={["example", ({ example_id }) => count(example_id)]}
            before={["score before", ({ before }) => score(before?.score), "number"]}
          />
          {step.diff !== null && <Block text={step.diff} label="Change of the code" />}
          <Log id={id} status={step.status} />
        </>
      )}
    </Shown>
  );
}

function BatchPage({ id }: { id: string }) {
  const loaded = useWork<Schema<"BatchView">>("batch", id);
  return (
    <Shown loaded={loaded}>
      {(batch) => (
        <>
          <Title kind="batch" id={id} status={batch.status} onChange={loaded.reload} />
          <section class="panel">
            <Facts
              facts={[
                ["tasks", `${count(batch.progress.completed)} of ${count(batch.progress.total)} completed`],
                ["failed", batch.progress.failed > 0 && `${count(batch.progress.failed)}: the table states why`],
                ["reason", batch.reason],
                ...timesOf(batch),
              ]}
            />
          </section>
          <Results items={batch.results} first={["task", ({ task_id }) => task_id]} />
          {batch.results.length < batch.progress.total - batch.progress.pending && (
            <p class="quiet">
              Further results: GET {API.batch}/{id}?after={batch.next}
            </p>
          )}
          <Log id={id} status={batch.status} />
        </>
      )}
    </Shown>
  );
}

interface TitleProps {
  readonly kind: "step" | "batch";
  readonly id: string;
  readonly status: string;
  readonly onChange: () => void;
}

function Title({ kind, id, status, onChange }: TitleProps) {
  const mayWrite = useMayWrite();
  const path = `${API[kind]}/${encodeURIComponent(id)}`;
  return (
    <div class="row view-title">
      <h1>{kind === "step" ? "Step" : "Batch"}</h1>
      <Badge text={status} />
      <span class="quiet mono">{id}</span>
      {mayWrite && (
        <fieldset class="row controls" aria-label={`Controls of the ${kind}`}>
          {hasEnded(status) ? (
            <DeleteButton
              what={`the ${kind}`}
              path={path}
              note="Its results and its log are deleted; a version that it made stays."
              onDone={() => location.assign(viewAddress("work", { show: kind === "step" ? "steps" : "batches" }))}
            />
          ) : (
            kind === "batch" && (
              <RequestButton
                title="Cancel the batch"
                submit="Cancel the batch"
                asked={() => ["POST", `${path}/cancel`]}
                onDone={onChange}
              >
                <p>The results that are there are kept.</p>
              </RequestButton>
            )
          )}
        </fieldset>
      )}
    </div>
  );
}

function VersionLink({ id, what }: { id: string; what?: string }) {
  return (
    <>
      <a href={viewAddress("version", { id })}>{id}</a>
      {what !== undefined && `: open it to ${what}`}
    </>
  );
}

function timesOf(work: { cost_usd: number; created_at: string; completed_at: string | null }) {
  return [
    ["cost of models", money(work.cost_usd)],
    ["begun", time(work.created_at)],
    ["ended", work.completed_at !== null && time(work.completed_at)],
  ] as const;
}

interface ResultsProps<Item> {
  readonly items: readonly Item[];
  readonly first: Column<Item>;
  readonly before?: Column<Item>;
}

function Results<Item extends Run>({ items, first, before }: ResultsProps<Item>) {
  if (items.length === 0) return <p class="empty">There are no results.</p>;
  const columns: Column<Item>[] = [
    first,
    ["status", (each) => <Badge text={each.status} />],
    ...(before === undefined ? [] : [before]),
    ["score", (each) => score(each.score), "number"],
    ["output", ({ output }) => (typeof output === "string" ? output : JSON.stringify(output))],
    ["feedback", ({ error, feedback }) => error ?? feedback ?? ""],
    ["took", (each) => duration(each.execution_time_ms / 1000), "number"],
  ];
  return (
    <section class="panel">
      <h2>Results</h2>
      <Table label="Results" tall items={items} columns={columns} />
    </section>
  );
}

function Log({ id, status }: { id: string; status: string }) {
  return (
    <section class="panel">
      <h2>Log</h2>
      <LogView id={id} status={status} />
    </section>
  );
}
