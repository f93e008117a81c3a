/** Read CSV of RFC 4180: columns separated by commas, values in quotes with `""` for a quote, lines of any ending. */

import { SetupError } from "../base/configuration.js";

/** A quoted or plain value, and what ends it. */
const VALUE = /(?:"([^"]*(?:""[^"]*)*)"|([^",\r\n][^,\r\n]*|))(,|\r\n|\n|\r|$)/y;

/** A record; `line`: the line that it begins on, from 1. */
export interface CsvRecord {
  values: string[];
  line: number;
}

/** Yield the records of a file's text, empty lines excepted. Throws `SetupError` at a quote that nothing ends. */
export function* csvRecords(path: string, text: string): Generator<CsvRecord> {
  let [at, line] = [0, 1];
  let record: CsvRecord = { values: [], line };
  while (at < text.length || record.values.length > 0) {
    VALUE.lastIndex = at;
    const found = VALUE.exec(text);
    if (found === null) throw new SetupError(`${path}: line ${line}: ${faultAt(text, at)}`);
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

function faultAt(text: string, at: number): string {
  const isClosed = /"[^"]*(?:""[^"]*)*"/y;
  isClosed.lastIndex = at;
  return isClosed.test(text)
    ? "a comma or the end of the line must follow a value in quotes; write a quote inside of it twice"
    : "a value in quotes has no end";
}

function lineEnds(text: string): number {
  return text.match(/\r\n|\n|\r/g)?.length ?? 0;
}
