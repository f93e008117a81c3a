/** A new optimization: the program, its rows, the budget, and who proposes texts. */

import { useEffect, useRef, useState } from "preact/hooks";
import { line } from "../../text/visible";
import { useAction, useList } from "../loading";
import { emptyFields, FIELDS, type Fields, requestOf, type Split } from "../optimize-request";
import { Field, TextField } from "../parts/field";
import { repositoryName } from "../parts/names";
import { type GivenRows, RowsField } from "../parts/rows-field";
import { ProblemNotice, Shown } from "../parts/shown";
import { jobAddress } from "../place";
import type { Problem } from "../request";
import type { Repository, Schema } from "../schema";
import { useMayWrite } from "../session";

export function NewView({ params }: { params: URLSearchParams }) {
  const mayWrite = useMayWrite();
  const connected = useList<Repository>(mayWrite ? "/repositories" : null);
  if (!mayWrite) {
    return (
      <>
        <h1>New optimization</h1>
        <p class="empty">Viewers cannot begin an optimization; editors and owners can.</p>
      </>
    );
  }
  return (
    <>
      <h1>New optimization</h1>
      <p class="about">
        The program is checked on a few rows before anything else is paid for; a failed check ends the job with its
        findings. The log of the job then states what the budget would cost and take, and the smallest gain that its
        rows can show.
      </p>
      <Shown loaded={connected}>{(known) => <Form known={known} repository={params.get("repository")} />}</Shown>
    </>
  );
}

/** `known`: the repositories that are connected. `repository`: the chosen one; null chooses the first. */
function Form({ known, repository }: { known: readonly Repository[]; repository: string | null }) {
  const [fields, setFields] = useState<Fields>(() => emptyFields(repository ?? known[0]?.client_id ?? ""));
  const { busy, problem, send, refuse } = useAction();
  const form = useRef<HTMLFormElement>(null);
  const set = (changed: Partial<Fields>) => setFields((before) => ({ ...before, ...changed }));
  const setRows = (split: Split, rows: GivenRows) => set({ rows: { ...fields.rows, [split]: rows } });

  useEffect(() => {
    if (problem === null) return;
    const wrong = form.current?.querySelector<HTMLElement>("[aria-invalid=true]");
    const hidden = wrong?.closest("details");
    if (hidden) hidden.open = true;
    wrong?.focus();
  }, [problem]);

  const submit = async () => {
    const made = requestOf(fields);
    if ("problem" in made) {
      refuse(made.problem);
      return;
    }
    const submitted = await send<Schema<"Submitted">>("POST", "/optimize", made.request);
    if (submitted !== null) location.assign(jobAddress(submitted.job_id));
  };
  const text = (name: keyof Fields & string, label: string, hint?: string, input = {}) => (
    <TextField
      label={label}
      name={name}
      problem={problem}
      {...(hint === undefined ? {} : { hint })}
      value={fields[name] as string}
      onChange={(value) => set({ [name]: value })}
      input={input}
    />
  );
  const number = { type: "number", min: 0, step: "any" };
  return (
    <form
      ref={form}
      class="optimize"
      noValidate
      onSubmit={(event) => {
        event.preventDefault();
        void submit();
      }}
    >
      <section class="panel">
        <h2>Program</h2>
        <Field label="Repository" name="client_id" problem={problem}>
          {(props) => (
            <select
              {...props}
              value={fields.repository}
              onChange={(event) => set({ repository: event.currentTarget.value })}
            >
              {known.map((each) => (
                <option key={each.client_id} value={each.client_id}>
                  {line(`${repositoryName(each.repo_url)} (${each.repo_url})`, 90)}
                </option>
              ))}
              <option value="">another one, by its address</option>
            </select>
          )}
        </Field>
        {fields.repository === "" && text("repo_url", "Address of the repository", "It need not be connected.")}
        <details>
          <summary>Branch, program, metric</summary>
          {text("ref", "Branch, tag or commit", "Empty: the default branch.")}
          {text("program", "Program", "Empty: as the repository's gepa.toml names it.", { placeholder: "program.py" })}
          {text("metric", "Metric", "Of a DSPy program alone.", { placeholder: "metric.py:score" })}
          {text("saved_program_json_path", "Saved program", "A JSON file of a DSPy program to begin with.")}
        </details>
      </section>
      <section class="panel">
        <h2>Rows</h2>
        <RowsField
          name="trainset"
          label="Training rows"
          hint="Proposals are made from these. A .json, .jsonl or .csv file."
          problem={problem}
          value={fields.rows.trainset}
          onChange={(rows) => setRows("trainset", rows)}
        />
        <RowsField
          name="valset"
          label="Validation rows"
          hint="Candidates are chosen by these. Empty: the training rows."
          problem={problem}
          value={fields.rows.valset}
          onChange={(rows) => setRows("valset", rows)}
        />
        <RowsField
          name="testset"
          label="Test rows"
          hint="Scored once at the end: the certificate rests on them. Without them there is none."
          problem={problem}
          value={fields.rows.testset}
          onChange={(rows) => setRows("testset", rows)}
        />
      </section>
      <section class="panel">
        <h2>Budget</h2>
        {text("max_metric_calls", "Metric calls", "Examples evaluated, over all candidates.", {
          type: "number",
          min: 1,
          step: 1,
        })}
        {text("max_cost_usd", "Cost in US dollars", "At most; empty for no limit of its own.", number)}
      </section>
      <section class="panel">
        <h2>Search</h2>
        {text("reflection_lm", "Reflection model", "Empty: the program proposes its own texts.", {
          placeholder: "openai/gpt-5",
        })}
        <Field label="What is changed" name="evolve" problem={problem}>
          {(props) => (
            <select {...props} value={fields.evolve} onChange={(event) => set({ evolve: event.currentTarget.value })}>
              <option value="">as the program supports</option>
              <option value="prompts">prompts</option>
              <option value="code">code</option>
              <option value="both">prompts and code</option>
            </select>
          )}
        </Field>
        <details>
          <summary>Parallel examples, sandboxes, further settings</summary>
          {text("num_threads", "Examples at the same time", undefined, { type: "number", min: 1, step: 1 })}
          {text("sandboxes", "Sandboxes", undefined, { type: "number", min: 1, step: 1 })}
          <Field
            label="Further settings"
            name="options"
            problem={problem}
            hint='A JSON object of settings of evolverpc optimize, such as {"reflection_minibatch_size": 5}.'
          >
            {(props) => (
              <textarea
                {...props}
                spellcheck={false}
                value={fields.options}
                onInput={(event) => set({ options: event.currentTarget.value })}
              />
            )}
          </Field>
        </details>
      </section>
      {problem !== null && !isAtFields(problem, fields.repository === "") && <ProblemNotice problem={problem} />}
      <p class="submit">
        <button type="submit" class="primary" disabled={busy}>
          {busy ? "Sending" : "Begin"}
        </button>{" "}
        {problem !== null && isAtFields(problem, fields.repository === "") && (
          <span class="bad" role="alert">
            Correct the fields that are marked.
          </span>
        )}
      </p>
    </form>
  );
}

/** Whether each part of a problem is shown at a field of the form. */
function isAtFields(problem: Problem, byAddress: boolean): boolean {
  const names = new Set<string>(FIELDS);
  if (!byAddress) names.delete("repo_url");
  const shown = problem.errors.filter(({ field }) => names.has(field.split(".")[0] ?? ""));
  return shown.length > 0 && shown.length === problem.errors.length;
}
