/** Rows from files, arrays and other iterables, checked against a schema. */

import { SetupError } from "../base/configuration.js";
import { unpacked } from "../base/exact-values.js";
import { type JsonValue, NotJson, toExactJson } from "../base/json.js";
import { shown } from "../base/values.js";
import { fileRows, type PlacedRow } from "./row-files.js";
import { checkSchema, type StandardSchema, validated } from "./standard-schema.js";

/** Where rows come from: a path (or `file:` URL) of a .jsonl, .json or .csv file, an array, or another iterable. */
export type RowSource<Row = unknown> = string | URL | Row[] | Iterable<Row> | AsyncIterable<Row>;

/**
 * Return all rows of a source, as the schema returns them if there is one.
 *
 * A .jsonl file has an object on each line, a .json file an array of objects, a .csv file a header and values that are
 * texts, separated by commas. A byte order mark and blank lines are skipped. Integers beyond 2^53 - 1 are BigInts.
 *
 * Throws `SetupError` if there is no such file, if it is malformed or empty, or for the first row that does not fit.
 */
export function readRows<Row>(source: RowSource, schema: StandardSchema<unknown, Row>): Promise<Row[]>;
export function readRows<Row = Record<string, unknown>>(file: string | URL): Promise<Row[]>;
export function readRows<Row>(source: RowSource<Row>): Promise<Row[]>;
export async function readRows(source: RowSource, schema?: StandardSchema): Promise<unknown[]> {
  if (schema !== undefined) checkSchema("schema", schema);
  const rows: unknown[] = [];
  for await (const placed of placedRows("rows", source)) {
    rows.push(schema === undefined ? placed.row : await checkedRow(placed, schema));
  }
  return rows;
}

/** Return the rows of a source as JSON with markers, unchanged: the schema only checks them. `name`: what holds the source. */
export async function jsonRows(name: string, source: RowSource, schema?: StandardSchema): Promise<JsonValue[]> {
  const rows: JsonValue[] = [];
  for await (const placed of placedRows(name, source)) {
    const row = asJson(placed);
    if (schema !== undefined) await checkedRow({ ...placed, row: unpacked(row) }, schema);
    rows.push(row);
  }
  return rows;
}

async function checkedRow<Row>({ row, place }: PlacedRow, schema: StandardSchema<unknown, Row>): Promise<Row> {
  const result = await validated(schema, row);
  if ("fault" in result) throw new SetupError(`${place}: the row does not fit its schema: ${result.fault}`);
  return result.value;
}

function asJson({ row, place }: PlacedRow): JsonValue {
  try {
    return toExactJson(row, place);
  } catch (error) {
    if (error instanceof NotJson) throw new SetupError(`rows must be JSON: ${error.message}`);
    throw error;
  }
}

async function* placedRows(name: string, source: RowSource): AsyncGenerator<PlacedRow> {
  if (typeof source === "string" || source instanceof URL) {
    yield* fileRows(pathOf(source));
    return;
  }
  if (!isIterable(source)) {
    throw new SetupError(
      `\`${name}\` must be rows: an array, another iterable, or the path of a file; not ${shown(source)}`,
    );
  }
  let count = 0;
  for await (const row of source) yield { row, place: `${name}[${count++}]` };
  if (count === 0 && !Array.isArray(source)) {
    throw new SetupError(`\`${name}\` holds no rows: an iterator that was read before has none left`);
  }
}

function isIterable(source: unknown): boolean {
  const made = Object(source) as Partial<Iterable<unknown> & AsyncIterable<unknown>>;
  return typeof (made[Symbol.iterator] ?? made[Symbol.asyncIterator]) === "function";
}

function pathOf(source: string | URL): string {
  if (typeof source === "string") return source;
  if (source.protocol === "file:") return decodeURIComponent(source.pathname);
  throw new SetupError(`${source.href}: rows are read from files: download it first, or give an iterable of its rows`);
}
