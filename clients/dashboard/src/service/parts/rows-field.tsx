/** The rows of a split: a file of the repository, or rows that are given here. */

import { useState } from "preact/hooks";
import { Choice } from "../../parts/choice";
import { Field } from "../../parts/form";

const SOURCES = [
  ["file", "a file"],
  ["here", "this form"],
] as const;

interface Props {
  /** `trainset`, `valset` or `testset`. */
  readonly name: string;
  readonly label: string;
  readonly hint: string;
}

export function RowsField({ name, label, hint }: Props) {
  const [from, setFrom] = useState<(typeof SOURCES)[number][0]>("file");
  return (
    <div class="row rows-field">
      <Field
        label={`${label}, a file of the repository`}
        name={`${name}_path`}
        hint={hint}
        hidden={from !== "file"}
        placeholder="data/rows.jsonl"
      />
      <Field
        label={`${label}, given here`}
        name={name}
        hint="A JSON object a line, or a JSON array."
        hidden={from !== "here"}
        long
        placeholder={'{"text": "I was charged twice", "label": "billing"}'}
      />
      <Choice legend={`${label} from`} options={SOURCES} value={from} onChange={setFrom} />
    </div>
  );
}
