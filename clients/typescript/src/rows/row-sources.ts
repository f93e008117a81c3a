/** Rows from files, arrays and other iterables, checked against a schema. */

import { SetupError } from "../base/configuration.js";
import { type JsonValue, NotJson, parseExactly, toExactJson, unpacked } from "../base/json.js";
import { builtin } from "../base/runtime.js";
import { isObject, shown } from "../base/values.js";
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

interface PlacedRow {
  row: unknown;
  /** Where the row is, for messages. */
  place: string;
}

const BLANK = /^[ \t]+$/;

const READERS: Record<string, (path: string, text: string) => Iterable<PlacedRow>> = {
  ".jsonl": jsonLines,
  ".json": jsonArray,
  ".csv": csvRows,
};

/** Yield the rows of a file. Throws `SetupError` if there is none, or if it cannot be read. */
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

interface Files {
  readFileSync(path: string): Uint8Array;
  realpathSync(path: string): string;
}

function textOf(path: string): string {
  const files = builtin<Files>("node:fs");
  if (files === undefined) throw new SetupError(`${path}: this runtime has no files: give an array of rows`);
  let bytes: Uint8Array;
  try {
    bytes = files.readFileSync(path);
  } catch (error) {
    const { code, message } = error as { code?: string; message: string };
    if (code !== "ENOENT") throw new SetupError(`${path}: cannot be read: ${message}`);
    throw new SetupError(`${path}: there is no such file in ${files.realpathSync(".")}`);
  }
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
    return parseExactly(text);
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
  for (const { values, line } of csvRecords(path, text)) {
    if (header === undefined) {
      header = checkedHeader(path, values);
      continue;
    }
    if (values.length === 1 && BLANK.test(values[0] as string)) continue;
    const place = `${path}: line ${line}`;
    if (values.length !== header.length) {
      throw new SetupError(`${place} has ${values.length} values for ${header.length} columns`);
    }
    yield { row: Object.fromEntries(header.map((name, at) => [name, values[at]])), place };
  }
}

function checkedHeader(path: string, names: string[]): string[] {
  const repeated = names.find((name, at) => names.indexOf(name) !== at);
  if (repeated !== undefined) throw new SetupError(`${path}: the header has the name ${shown(repeated)} twice`);
  if (names.length > 1 || !/[;\t|]/.test(names[0] ?? "")) return names;
  throw new SetupError(`${path}: one column, ${shown(names[0])}: columns are separated by commas`);
}

/** A quoted or plain value, and what ends it. */
const VALUE = /(?:"([^"]*(?:""[^"]*)*)"|([^",\r\n][^,\r\n]*|))(,|\r\n|\n|\r|$)/y;

/**
 * Yield the records of CSV by RFC 4180, each with the line that it begins on, empty lines excepted: columns separated by
 * commas, values in quotes with `""` for a quote, lines of any ending. Throws `SetupError` at a quote that nothing ends.
 */
export function* csvRecords(path: string, text: string): Generator<{ values: string[]; line: number }> {
  let [at, line] = [0, 1];
  let record = { values: [] as string[], line };
  while (at < text.length || record.values.length > 0) {
    VALUE.lastIndex = at;
    const found = VALUE.exec(text);
    if (found === null)
      throw new SetupError(`${path}: line ${line}: a value in quotes has no end, or more than a comma behind it`);
    const [whole, quoted, plain = "", end] = found;
    at += whole.length;
    line += quoted === undefined ? 0 : lineEnds(quoted);
    record.values.push(quoted?.replaceAll('""', '"') ?? plain);
    if (end === ",") continue;
    line++;
    if (record.values.length > 1 || quoted !== undefined || plain !== "") yield record;
    record = { values: [], line };
    if (end === "") return;
  }
}

function lineEnds(text: string): number {
  return text.match(/\r\n|\n|\r/g)?.length ?? 0;
}
