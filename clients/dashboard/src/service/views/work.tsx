/** Steps and batches: the list of each, and the page of one with its results and what to do next. */

import type { ComponentChildren } from "preact";
import { useList, useLoaded } from "../../loading";
import { RequestButton } from "../../parts/action";
import { Badge } from "../../parts/badge";
import { type Fact, Facts } from "../../parts/facts";
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
  const show = params.get("show") === "batches" ? "batches" : "steps";
  if (step !== null) return <StepPage id={step} />;
  if (batch !== null) return <BatchPage id={batch} />;
  return (
    <>
      <h1>Steps and batches</h1>
      <p class="about">
        A step changes a version once and makes another one; a batch runs a version on rows. Programs begin both, by{" "}
        <code>POST {show === "steps" ? API.step : API.batch}</code>.
      </p>
      <Filters label="Which kind" view="work" names={["steps", "batches"]} current={show} />
      {show === "steps" ? (
        <Listed<Step> path={API.step} id={({ step_id }) => ({ step: step_id })} columns={OF_STEPS} />
      ) : (
        <Listed<Batch> path={API.batch} id={({ batch_id }) => ({ batch: batch_id })} columns={OF_BATCHES} />
      )}
    </>
  );
}

const OF_STEPS: readonly Column<Step>[] = [
  ["version", ({ status, program_id }) => (status === "success" ? program_id : "none")],
];
const OF_BATCHES: readonly Column<Batch>[] = [
  ["tasks", ({ progress }) => count(progress.total), "number"],
  ["failed", ({ progress }) => count(progress.failed), "number"],
  ["pending", ({ progress }) => count(progress.pending), "number"],
];

interface ListedProps<Item> {
  readonly path: string;
  readonly id: (item: Item) => Record<string, string>;
  readonly columns: readonly Column<Item>[];
}

function Listed<Item extends Step | Batch>({ path, id, columns }: ListedProps<Item>) {
  const all: readonly Column<Item>[] = [
    ["begun", (each) => <a href={viewAddress("work", id(each))}>{time(each.created_at)}</a>],
    ["status", ({ status }) => <Badge text={status} />],
    ...columns,
    ["cost", ({ cost_usd }) => money(cost_usd), "number"],
    ["reason", (each) => ("error" in each ? each.error : each.reason) ?? ""],
  ];
  return (
    <List list={useList<Item>(path, EVERY_MS)} empty={<p>None yet.</p>}>
      {(items) => <Table label="Steps or batches" items={items} columns={all} />}
    </List>
  );
}

function StepPage({ id }: { id: string }) {
  return (
    <One<Schema<"StepView">>
      kind="step"
      id={id}
      facts={(step) => [
        ["made", step.status === "success" && <VersionLink id={step.program_id} what="promote or deliver it" />],
        ["from", step.parent_program_id !== null && <VersionLink id={step.parent_program_id} />],
        ["why not", step.error],
        ["change", step.summary],
      ]}
      results={({ pipeline_outputs, diff }) => (
        <>
          <Results
            items={pipeline_outputs}
            first={["example", ({ example_id }) => count(example_id)]}
            before={["score before", ({ before }) => score(before?.score), "number"]}
          />
          {diff !== null && (
            <section class="panel">
              <h2>Change of the code</h2>
              <Block text={diff} label="Change of the code" />
            </section>
          )}
        </>
      )}
    />
  );
}

function BatchPage({ id }: { id: string }) {
  return (
    <One<Schema<"BatchView">>
      kind="batch"
      id={id}
      facts={({ progress, reason, results, next }) => [
        ["tasks", `${count(progress.completed)} of ${count(progress.total)} completed`],
        ["failed", progress.failed > 0 && `${count(progress.failed)}: the table states why`],
        ["reason", reason],
        ["more results", results.length < progress.total - progress.pending && `GET ${API.batch}/${id}?after=${next}`],
      ]}
      results={({ results }) => <Results items={results} first={["task", ({ task_id }) => task_id]} />}
    />
  );
}

interface OneProps<View> {
  readonly kind: keyof typeof API;
  readonly id: string;
  readonly facts: (work: View) => readonly Fact[];
  readonly results: (work: View) => ComponentChildren;
}

function One<View extends Schema<"StepView"> | Schema<"BatchView">>({ kind, id, facts, results }: OneProps<View>) {
  const loaded = useLoaded<View>(`${API[kind]}/${encodeURIComponent(id)}`, { everyMs: EVERY_MS });
  return (
    <Shown loaded={loaded}>
      {(work) => (
        <>
          <Title kind={kind} id={id} status={work.status} onChange={loaded.reload} />
          <section class="panel">
            <Facts
              facts={[
                ...facts(work),
                ["cost of models", money(work.cost_usd)],
                ["begun", time(work.created_at)],
                ["ended", work.completed_at !== null && time(work.completed_at)],
              ]}
            />
          </section>
          {results(work)}
          <section class="panel">
            <h2>Log</h2>
            <LogView id={id} status={work.status} />
          </section>
        </>
      )}
    </Shown>
  );
}

interface TitleProps {
  readonly kind: keyof typeof API;
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
            <RequestButton
              title={`Cancel the ${kind}`}
              submit={`Cancel the ${kind}`}
              asked={() => ["POST", `${path}/cancel`]}
              onDone={onChange}
            >
              <p>{kind === "step" ? "The step makes no version." : "The results that are there are kept."}</p>
            </RequestButton>
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
