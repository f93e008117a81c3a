/** From the fields of the form to the request of `POST /optimize`. */

import { type GivenRows, NO_ROWS, readRows } from "./parts/rows-field";
import type { Problem } from "./request";

export const SPLITS = ["trainset", "valset", "testset"] as const;
export type Split = (typeof SPLITS)[number];

/** All fields as they were typed. `repository`: a `client_id`, or "" for one by its address. */
export interface Fields {
  readonly repository: string;
  readonly repo_url: string;
  readonly ref: string;
  readonly program: string;
  readonly metric: string;
  readonly saved_program_json_path: string;
  readonly rows: Readonly<Record<Split, GivenRows>>;
  readonly max_metric_calls: string;
  readonly max_cost_usd: string;
  readonly reflection_lm: string;
  readonly evolve: string;
  readonly num_threads: string;
  readonly sandboxes: string;
  readonly options: string;
}

export function emptyFields(repository: string): Fields {
  return {
    repository,
    repo_url: "",
    ref: "",
    program: "",
    metric: "",
    saved_program_json_path: "",
    rows: { trainset: NO_ROWS, valset: NO_ROWS, testset: NO_ROWS },
    max_metric_calls: "300",
    max_cost_usd: "",
    reflection_lm: "",
    evolve: "",
    num_threads: "",
    sandboxes: "",
    options: "",
  };
}

const TEXTS = ["ref", "program", "metric", "saved_program_json_path", "reflection_lm", "evolve"] as const;
const NUMBERS = ["max_metric_calls", "max_cost_usd", "num_threads", "sandboxes"] as const;

/** The fields of a request that the form has. */
export const FIELDS: readonly string[] = [
  "client_id",
  "repo_url",
  "options",
  ...TEXTS,
  ...NUMBERS,
  ...SPLITS,
  ...SPLITS.map((split) => `${split}_path`),
];

export type Made = { readonly request: Readonly<Record<string, unknown>> } | { readonly problem: Problem };

/** Return the request; a problem if fields cannot be read, as the service would answer it. */
export function requestOf(fields: Fields): Made {
  const request: Record<string, unknown> = {};
  const errors: { field: string; message: string }[] = [];
  if (fields.repository !== "") request.client_id = fields.repository;
  else request.repo_url = fields.repo_url.trim();
  for (const name of TEXTS) if (fields[name].trim() !== "") request[name] = fields[name].trim();
  for (const name of NUMBERS) {
    const text = fields[name].trim();
    if (text === "") continue;
    if (Number.isFinite(Number(text))) request[name] = Number(text);
    else errors.push({ field: name, message: "is not a number" });
  }
  for (const split of SPLITS) {
    const { from, path, text } = fields.rows[split];
    if (from === "file" && path.trim() !== "") request[`${split}_path`] = path.trim();
    if (from === "here") {
      const read = readRows(text);
      if ("rows" in read) request[split] = read.rows;
      else errors.push({ field: split, message: read.error });
    }
  }
  if (fields.options.trim() !== "") {
    const options = objectOf(fields.options);
    if (options === null) errors.push({ field: "options", message: "is not a JSON object" });
    else request.options = options;
  }
  if (errors.length === 0) return { request };
  return { problem: { status: 0, title: "Field not valid", detail: "correct the fields that are marked", errors } };
}

function objectOf(text: string): object | null {
  try {
    const read = JSON.parse(text) as unknown;
    return typeof read === "object" && read !== null && !Array.isArray(read) ? read : null;
  } catch {
    return null;
  }
}
