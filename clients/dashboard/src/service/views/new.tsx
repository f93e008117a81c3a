/** A new optimization: the program, its rows, the budget, and who proposes texts. */

import { useState } from "preact/hooks";
import { useList } from "../../loading";
import { useAction } from "../../parts/action";
import { type Described, Field, Fields, Form } from "../../parts/form";
import { Shown } from "../../parts/shown";
import { line } from "../../text/visible";
import { requestOf } from "../optimize-request";
import { repositoryName } from "../parts/names";
import { RowsField } from "../parts/rows-field";
import { jobAddress } from "../place";
import type { Repository, Schema } from "../schema";

const EVOLVED = [
  ["", "as the program supports"],
  ["prompts", "prompts"],
  ["code", "code"],
  ["both", "prompts and code"],
] as const;
const PROGRAM: readonly Described[] = [
  ["ref", "Branch, tag or commit", { hint: "Empty: the default branch." }],
  ["program", "Program", { hint: "Empty: as the repository's gepa.toml names it.", placeholder: "program.py" }],
  ["metric", "Metric", { hint: "Of a DSPy program alone.", placeholder: "metric.py:score" }],
  ["saved_program_json_path", "Saved program", { hint: "A JSON file of a DSPy program to begin with." }],
];
const ROWS = [
  ["trainset", "Training rows", "Proposals are made from these. A .json, .jsonl or .csv file."],
  ["valset", "Validation rows", "Candidates are chosen by these. Empty: the training rows."],
  ["testset", "Test rows", "Scored once at the end: the certificate rests on them. Without them there is none."],
] as const;
const CALLS = { hint: "Examples evaluated, over all candidates.", min: 1, defaultValue: "300" };
const MONEY = { hint: "At most; empty for no limit of its own.", min: 0, step: "any" } as const;
const BUDGET: readonly Described[] = [
  ["max_metric_calls", "Metric calls", { type: "number", ...CALLS }],
  ["max_cost_usd", "Cost in US dollars", { type: "number", ...MONEY }],
];
const MODEL = { hint: "Empty: the program proposes its own texts.", placeholder: "openai/gpt-5" };
const OPTIONS = 'A JSON object of settings of an optimization, such as {"reflection_minibatch_size": 5}.';
const SEARCH: readonly Described[] = [
  ["reflection_lm", "Reflection model", MODEL],
  ["evolve", "What is changed", { options: EVOLVED }],
];
const FURTHER: readonly Described[] = [
  ["num_threads", "Examples at the same time", { type: "number", min: 1 }],
  ["sandboxes", "Sandboxes", { type: "number", min: 1 }],
  ["options", "Further settings", { hint: OPTIONS, long: true }],
];

export function NewView({ params }: { params: URLSearchParams }) {
  const connected = useList<Repository>("/repositories");
  return (
    <>
      <h1>New optimization</h1>
      <p class="about">
        The program is checked on a few rows before anything else is paid for; a failed check ends the job with its
        findings. The log of the job then states what the budget would cost and take, and the smallest gain that its
        rows can show.
      </p>
      <Shown loaded={connected}>{(known) => <Request known={known} repository={params.get("repository")} />}</Shown>
    </>
  );
}

/** `known`: the repositories that are connected. `repository`: the chosen one; null chooses the first. */
function Request({ known, repository }: { known: readonly Repository[]; repository: string | null }) {
  const [chosen, setChosen] = useState(repository ?? known[0]?.client_id ?? "");
  const { busy, problem, send, refuse } = useAction();
  const named = known.map(({ client_id, repo_url }): [string, string] => [
    client_id,
    line(`${repositoryName(repo_url)} (${repo_url})`, 90),
  ]);
  return (
    <Form
      class="optimize"
      busy={busy}
      problem={problem}
      submit="Begin"
      sending="Sending"
      onSubmit={async (given) => {
        const made = requestOf(given);
        if ("problem" in made) {
          refuse(made.problem);
          return;
        }
        const submitted = await send<Schema<"Submitted">>("POST", "/optimize", made.request);
        if (submitted !== null) location.assign(jobAddress(submitted.job_id));
      }}
    >
      <section class="panel">
        <h2>Program</h2>
        <Field
          label="Repository"
          name="client_id"
          options={[...named, ["", "another one, by its address"]]}
          value={chosen}
          onChange={(event) => setChosen(event.currentTarget.value)}
        />
        {chosen === "" && <Field label="Address of the repository" name="repo_url" hint="It need not be connected." />}
        <details>
          <summary>Branch, program, metric</summary>
          <Fields of={PROGRAM} />
        </details>
      </section>
      <section class="panel">
        <h2>Rows</h2>
        {ROWS.map(([name, label, hint]) => (
          <RowsField key={name} name={name} label={label} hint={hint} />
        ))}
      </section>
      <section class="panel">
        <h2>Budget</h2>
        <Fields of={BUDGET} />
      </section>
      <section class="panel">
        <h2>Search</h2>
        <Fields of={SEARCH} />
        <details>
          <summary>Parallel examples, sandboxes, further settings</summary>
          <Fields of={FURTHER} />
        </details>
      </section>
    </Form>
  );
}
