/** Read the result of a run: the texts of its best candidate. */

import { readFileSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { shown } from "./values.js";

const FILE = "best_candidate.json";
const ADDED = "added_components";
const OF_CODE = ["git_branch", ADDED];

/** A candidate cannot be used; the message names the file, what is wrong with it and what to give instead. */
export class CandidateError extends Error {
  constructor(message: string) {
    super(message);
    this.name = "CandidateError";
  }
}

/**
 * Return the texts of a candidate, by component.
 *
 * `path`: a run's `best_candidate.json`, or the folder of the run that holds it. `components`: the names that the
 * candidate must have, neither more nor fewer, as a list or as an object such as the program's `seedCandidate`.
 *
 * Of a run that changed code, the texts that code changes added are among them, and the name of the commit is not.
 *
 * Throws `CandidateError` if there is no such file (`last` and ids of runs are none), if it is no candidate, or if it has other components.
 */
export function loadCandidate(
  path: string,
  components?: readonly string[] | Readonly<Record<string, string>>,
): Record<string, string> {
  const file = fileOf(path);
  const own = texts(file, parsed(file, read(file), "the file"));
  const added = own[ADDED] === undefined ? {} : texts(file, parsed(file, own[ADDED], `\`${ADDED}\``));
  const found = Object.entries({ ...added, ...own }).filter(([name]) => !OF_CODE.includes(name));
  const candidate = Object.fromEntries(found);
  if (components !== undefined) compare(file, candidate, namesOf(components));
  return candidate;
}

function fileOf(path: string): string {
  if (!statSync(path, { throwIfNoEntry: false })?.isDirectory()) return path;
  const file = join(path, FILE);
  if (statSync(file, { throwIfNoEntry: false })?.isFile()) return file;
  throw new CandidateError(`${path} holds no ${FILE}: give the folder of one run, such as runs/TIME`);
}

function read(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (code !== "ENOENT") throw new CandidateError(`${file}: cannot be read: ${message}`);
    throw new CandidateError(missing(file));
  }
}

function missing(path: string): string {
  const inRuns = join("runs", path);
  const meant = statSync(inRuns, { throwIfNoEntry: false })?.isDirectory() ? `; did you mean ${inRuns}?` : "";
  return (
    `${path}: there is no such file or folder in ${process.cwd()}${meant}; give the folder of a run, which ` +
    "`gepa-client show last` prints as `results in`, or the " +
    `${FILE} in it`
  );
}

function parsed(file: string, text: string, what: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new CandidateError(`${file}: ${what} is not JSON: ${(error as Error).message}`);
  }
}

function texts(file: string, found: unknown): Record<string, string> {
  if (typeof found !== "object" || found === null || Array.isArray(found)) {
    throw new CandidateError(`${file}: not a candidate: a JSON object of texts by component is expected`);
  }
  if ("candidates" in found && Array.isArray(found.candidates)) {
    throw new CandidateError(`${file} is the whole result of a run: give ${join(dirname(file), FILE)}`);
  }
  for (const [name, text] of Object.entries(found)) {
    if (typeof text === "string") continue;
    throw new CandidateError(`${file}: not a candidate: \`${name}\` is ${shown(text)}, not a text`);
  }
  return found as Record<string, string>;
}

function namesOf(components: readonly string[] | Readonly<Record<string, string>>): readonly string[] {
  return Array.isArray(components) ? components : Object.keys(components);
}

function compare(file: string, candidate: Record<string, string>, components: readonly string[]): void {
  const missing = components.filter((name) => !Object.hasOwn(candidate, name)).sort();
  const extra = Object.keys(candidate).filter((name) => !components.includes(name));
  const faults = [
    ...(missing.length > 0 ? [`lacks ${missing.join(", ")}`] : []),
    ...(extra.length > 0 ? [`has ${extra.sort().join(", ")} besides`] : []),
  ];
  if (faults.length === 0) return;
  throw new CandidateError(
    `${file}: the candidate ${faults.join(" and ")}: it is of another program, or of another version of it`,
  );
}
