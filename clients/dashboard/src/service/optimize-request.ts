/** From the fields of the form to the request of `POST /optimize`. */

import { type Given, stated } from "../parts/form";
import type { Problem } from "../parts/problem";

export type Made = { readonly request: Readonly<Record<string, unknown>> } | { readonly problem: Problem };

/** Return the request; a problem if fields cannot be read, as the service would answer it. */
export function requestOf(given: Given): Made {
  const request: Record<string, unknown> = stated(given);
  const errors: { field: string; message: string }[] = [];
  for (const split of ["trainset", "valset", "testset"]) {
    if (!(split in given)) continue;
    const read = readRows(String(given[split] ?? ""));
    if ("rows" in read) request[split] = read.rows;
    else errors.push({ field: split, message: read.error });
  }
  if (typeof given.options === "string") {
    request.options = parsed(given.options);
    if (!isObject(request.options)) errors.push({ field: "options", message: "is not a JSON object" });
  }
  if (errors.length === 0) return { request };
  return { problem: { status: 0, title: "Field not valid", detail: "correct the fields that are marked", errors } };
}

type ReadRows = { readonly rows: readonly object[] } | { readonly error: string };

/** Read rows as they were typed: a JSON array, or an object a line. */
function readRows(text: string): ReadRows {
  let rows: unknown[];
  if (text.startsWith("[")) {
    const read = parsed(text);
    if (!Array.isArray(read)) return { error: "it begins with [, but is not a JSON array" };
    rows = read;
  } else {
    const lines = text.split("\n").map((line) => (line.trim() === "" ? null : { row: parsed(line) }));
    const wrong = lines.findIndex((line) => line !== null && line.row === undefined);
    if (wrong >= 0) return { error: `line ${wrong + 1} is not JSON` };
    rows = lines.flatMap((line) => (line === null ? [] : [line.row]));
  }
  const odd = rows.findIndex((row) => !isObject(row));
  if (odd >= 0) return { error: `row ${odd + 1} is not a JSON object` };
  if (rows.length === 0) return { error: "there is no row" };
  return { rows: rows as object[] };
}

function isObject(value: unknown): boolean {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}
