/** A new optimization: the program, its rows, the budget, and who proposes texts. */

import { useState } from "preact/hooks";
import { useList } from "../../loading";
import { useAction } from "../../parts/action";
import { Field, Form } from "../../parts/form";
import { Shown } from "../../parts/shown";
import { line } from "../../text/visible";
import { requestOf } from "../optimize-request";
import { repositoryName } from "../parts/names";
import { RowsField } from "../parts/rows-field";
import { jobAddress } from "../place";
import type { Repository, Schema } from "../schema";
import { useMayWrite } from "../session";

const EVOLVED = [
  ["", "as the program supports"],
  ["prompts", "prompts"],
  ["code", "code"],
  ["both", "prompts and code"],
] as const;

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
          <Field label="Branch, tag or commit" name="ref" hint="Empty: the default branch." />
          <Field
            label="Program"
            name="program"
            hint="Empty: as the repository's gepa.toml names it."
            placeholder="program.py"
          />
          <Field label="Metric" name="metric" hint="Of a DSPy program alone." placeholder="metric.py:score" />
          <Field
            label="Saved program"
            name="saved_program_json_path"
            hint="A JSON file of a DSPy program to begin with."
          />
        </details>
      </section>
      <section class="panel">
        <h2>Rows</h2>
        <RowsField
          name="trainset"
          label="Training rows"
          hint="Proposals are made from these. A .json, .jsonl or .csv file."
        />
        <RowsField
          name="valset"
          label="Validation rows"
          hint="Candidates are chosen by these. Empty: the training rows."
        />
        <RowsField
          name="testset"
          label="Test rows"
          hint="Scored once at the end: the certificate rests on them. Without them there is none."
        />
      </section>
      <section class="panel">
        <h2>Budget</h2>
        <Field
          label="Metric calls"
          name="max_metric_calls"
          hint="Examples evaluated, over all candidates."
          type="number"
          min={1}
          defaultValue="300"
        />
        <Field
          label="Cost in US dollars"
          name="max_cost_usd"
          hint="At most; empty for no limit of its own."
          type="number"
          min={0}
          step="any"
        />
      </section>
      <section class="panel">
        <h2>Search</h2>
        <Field
          label="Reflection model"
          name="reflection_lm"
          hint="Empty: the program proposes its own texts."
          placeholder="openai/gpt-5"
        />
        <Field label="What is changed" name="evolve" options={EVOLVED} />
        <details>
          <summary>Parallel examples, sandboxes, further settings</summary>
          <Field label="Examples at the same time" name="num_threads" type="number" min={1} />
          <Field label="Sandboxes" name="sandboxes" type="number" min={1} />
          <Field
            label="Further settings"
            name="options"
            hint='A JSON object of settings of evolverpc optimize, such as {"reflection_minibatch_size": 5}.'
            long
          />
        </details>
      </section>
    </Form>
  );
}
