/** The rows of a split: a file of the repository, or rows that are given here. */

import { Choice } from "../../parts/choice";
import type { Problem } from "../request";
import { Field, TextField } from "./field";

export type RowsFrom = "file" | "here";

export interface GivenRows {
  readonly from: RowsFrom;
  readonly path: string;
  readonly text: string;
}

export const NO_ROWS: GivenRows = { from: "file", path: "", text: "" };

interface Props {
  /** `trainset`, `valset` or `testset`. */
  readonly name: string;
  readonly label: string;
  readonly hint: string;
  readonly problem: Problem | null;
  readonly value: GivenRows;
  readonly onChange: (value: GivenRows) => void;
}

export function RowsField({ name, label, hint, problem, value, onChange }: Props) {
  return (
    <div class="rows-field">
      {value.from === "file" ? (
        <TextField
          label={`${label}, a file of the repository`}
          name={`${name}_path`}
          problem={problem}
          hint={hint}
          value={value.path}
          onChange={(path) => onChange({ ...value, path })}
          input={{ placeholder: "data/rows.jsonl" }}
        />
      ) : (
        <Field
          label={`${label}, given here`}
          name={name}
          problem={problem}
          hint="A JSON object a line, or a JSON array."
        >
          {(props) => (
            <textarea
              {...props}
              spellcheck={false}
              value={value.text}
              placeholder={'{"text": "I was charged twice", "label": "billing"}'}
              onInput={(event) => onChange({ ...value, text: event.currentTarget.value })}
            />
          )}
        </Field>
      )}
      <Choice
        legend={`${label} from`}
        options={[
          ["file", "a file"],
          ["here", "this form"],
        ]}
        value={value.from}
        onChange={(from) => onChange({ ...value, from })}
      />
    </div>
  );
}

export type ReadRows = { readonly rows: readonly object[] } | { readonly error: string };

/** Read rows as they were typed: a JSON array, or an object a line. */
export function readRows(text: string): ReadRows {
  const trimmed = text.trim();
  let rows: unknown[];
  if (trimmed.startsWith("[")) {
    const read = parsed(trimmed);
    if (!Array.isArray(read)) return { error: "it begins with [, but is not a JSON array" };
    rows = read;
  } else {
    const lines = trimmed.split("\n").filter((line) => line.trim() !== "");
    rows = lines.map(parsed);
    const wrong = rows.indexOf(undefined);
    if (wrong >= 0) return { error: `line ${wrong + 1} is not JSON` };
  }
  const odd = rows.findIndex((row) => typeof row !== "object" || row === null || Array.isArray(row));
  if (odd >= 0) return { error: `row ${odd + 1} is not a JSON object` };
  if (rows.length === 0) return { error: "there is no row" };
  return { rows: rows as object[] };
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}
