/** Rows from files, arrays and other iterables, checked against a schema; a fault names the file, line and field. */

import { SetupError } from "./configuration.js";
import { CsvError, csvRecords } from "./csv.js";
import { type JsonValue, NotJson, toJsonValue } from "./json.js";
import { currentFolder, fileBytes } from "./runtime.js";
import { checkSchema, type StandardSchema, validated } from "./standard-schema.js";
import { isObject, shown } from "./values.js";

/** Where rows come from: a path (or `file:` URL) of a .jsonl, .json or .csv file, an array, or another iterable. */
export type RowSource<Row = unknown> = string | URL | Row[] | Iterable<Row> | AsyncIterable<Row>;

interface PlacedRow {
  row: unknown;
  /** Where the row is, for messages. */
  place: string;
}

/**
 * Return all rows of a source, as the schema returns them if there is one.
 *
 * A .jsonl file has an object on each line, a .json file an array of objects, a .csv file a header and values that are
 * texts, separated by commas. A byte order mark and empty lines are skipped.
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

/** Return the rows of a source as JSON, unchanged: the schema only checks them. `name`: what holds the source. */
export async function jsonRows(name: string, source: RowSource, schema?: StandardSchema): Promise<JsonValue[]> {
  const rows: JsonValue[] = [];
  for await (const placed of placedRows(name, source)) {
    const row = asJson(placed);
    if (schema !== undefined) await checkedRow({ ...placed, row }, schema);
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
    return toJsonValue(row, place);
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

const READERS: Record<string, (path: string, text: string) => Iterable<PlacedRow>> = {
  ".jsonl": jsonLines,
  ".json": jsonArray,
  ".csv": csvRows,
};

function* fileRows(path: string): Generator<PlacedRow> {
  const reader = READERS[/\.[^./\\]*$/.exec(path)?.[0].toLowerCase() ?? ""];
  if (reader === undefined) throw new SetupError(`${path}: rows are read from .jsonl, .json or .csv`);
  let isEmpty = true;
  for (const placed of reader(path, textOf(path))) {
    isEmpty = false;
    yield placed;
  }
  if (isEmpty) throw new SetupError(`${path}: holds no rows`);
}

function textOf(path: string): string {
  let bytes: Uint8Array | undefined;
  try {
    bytes = fileBytes(path);
  } catch (error) {
    const { code, message } = error as { code?: string; message: string };
    if (code !== "ENOENT") throw new SetupError(`${path}: cannot be read: ${message}`);
    throw new SetupError(`${path}: there is no such file in ${currentFolder()}`);
  }
  if (bytes === undefined) throw new SetupError(`${path}: this runtime has no files: give an array of rows`);
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw new SetupError(`${path}: not UTF-8 text`);
  }
}

function* jsonLines(path: string, text: string): Generator<PlacedRow> {
  for (const [at, line] of text.split("\n").entries()) {
    if (/^[^\S\ufeff]*$/.test(line)) continue; // as Python does: a byte order mark is no space
    const place = `${path}: line ${at + 1}`;
    yield { row: objectOf(place, parsed(place, line)), place };
  }
}

function* jsonArray(path: string, text: string): Generator<PlacedRow> {
  const rows = parsed(path, text);
  if (!Array.isArray(rows)) throw new SetupError(`${path}: not an array of rows`);
  for (const [at, row] of rows.entries()) {
    const place = `${path}: row ${at}`;
    yield { row: objectOf(place, row), place };
  }
}

function parsed(place: string, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new SetupError(`${place}: not JSON: ${(error as Error).message}`);
  }
}

function objectOf(place: string, row: unknown): object {
  if (!isObject(row)) throw new SetupError(`${place} is not a JSON object`);
  return row;
}

function* csvRows(path: string, text: string): Generator<PlacedRow> {
  let header: string[] | undefined;
  try {
    for (const { values, line } of csvRecords(text)) {
      if (header === undefined) {
        header = checkedHeader(path, values);
        continue;
      }
      const place = `${path}: line ${line}`;
      if (values.length !== header.length) {
        throw new SetupError(`${place} has ${values.length} values for ${header.length} columns`);
      }
      yield { row: Object.fromEntries(header.map((name, at) => [name, values[at]])), place };
    }
  } catch (error) {
    if (error instanceof CsvError) throw new SetupError(`${path}: line ${error.line}: ${error.message}`);
    throw error;
  }
}

function checkedHeader(path: string, names: string[]): string[] {
  const repeated = names.find((name, at) => names.indexOf(name) !== at);
  if (repeated !== undefined) throw new SetupError(`${path}: the header has the name ${shown(repeated)} twice`);
  const [first = ""] = names;
  const other = names.length > 1 ? undefined : /[;\t|]/.exec(first)?.[0];
  if (other === undefined) return names;
  throw new SetupError(
    `${path}: one column, ${shown(first)}: is ${shown(other)} the separator? Columns are separated by commas: save the ` +
      "file with commas, or rename the column",
  );
}
