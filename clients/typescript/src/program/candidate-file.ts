/** Candidates in files: the best of a run, read where the program is used, and texts written for `loadCandidate`. */

import { existsSync, readdirSync, readFileSync, renameSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { isObject, shown } from "../base/values.js";
import type { Candidate, CandidateOf } from "./program.js";

const LAST = "last";
const RUNS = "runs";
const FILE = "best_candidate.json";
const RESULT = "result.json";
const ADDED = "added_components";
const OF_CODE = ["git_branch", ADDED];

/** The part of a program that identifies its candidates. */
interface CandidatesProgram {
  name: string;
  version?: string;
  seedCandidate: Readonly<Candidate> | (() => unknown);
}

/** What a candidate must fit: a program, a seed candidate, or the names of components. */
type Expected = CandidatesProgram | Readonly<Candidate> | readonly string[];

/** A candidate cannot be used; the message names the file, what is wrong with it and what to give instead. */
export class CandidateError extends Error {
  override name = "CandidateError";
}

/**
 * Return the texts of a candidate, by component.
 *
 * `path`: a run's `best_candidate.json`, or the folder of the run that holds it; `last` is the newest folder in `runs`, unless
 * a file or folder has this name. `expected`: the program that uses the
 * texts, its seed candidate, or the names of its components, which the candidate must have, neither more nor fewer. If
 * the run's `result.json` is beside the file, its program must have the name of the given one, and its version if both
 * declare one; texts of the seed that differ from those the run started from are a warning of the process, for a seed may
 * have been improved since. The type of the program alone, `loadCandidate<typeof program>(path)`, checks nothing.
 *
 * Of a run that changed code, the texts that code changes added are among them, and the name of the commit is not.
 *
 * Throws `CandidateError` if there is no such file (ids of runs are none), if it is no candidate, or if it is
 * of another program.
 */
export function loadCandidate<const Type extends Expected = Candidate>(
  path: string,
  expected?: Type,
): CandidateOf<Type> {
  const file = fileOf(path);
  const own = texts(file, contentOf(file));
  const added = own[ADDED] === undefined ? {} : texts(file, parsed(file, own[ADDED], `\`${ADDED}\``));
  const found = Object.entries({ ...added, ...own }).filter(([name]) => !OF_CODE.includes(name));
  const candidate = Object.fromEntries(found);
  if (expected !== undefined) compare(file, candidate, expected);
  return candidate as CandidateOf<Type>;
}

/**
 * Write the texts of a candidate, by component, to a file that `loadCandidate` reads in TypeScript and Python.
 *
 * Throws `CandidateError` for what is not an object of texts, and the error of the file system.
 */
export function saveCandidate(path: string, candidate: Readonly<Candidate>): void {
  const partial = `${path}.${process.pid}.partial`;
  writeFileSync(partial, `${JSON.stringify(texts(path, candidate), null, 2)}\n`);
  renameSync(partial, path);
}

function fileOf(path: string): string {
  const found = statSync(path, { throwIfNoEntry: false });
  if (found === undefined && path === LAST) return newest();
  if (!found?.isDirectory()) return path;
  const file = join(path, FILE);
  if (statSync(file, { throwIfNoEntry: false })?.isFile()) return file;
  throw new CandidateError(`${path} holds no ${FILE}: give the folder of one run, such as runs/TIME`);
}

/** The file of the newest run in `runs` that has one. */
function newest(): string {
  const folders = existsSync(RUNS) ? readdirSync(RUNS) : [];
  const files = folders.map((name) => join(RUNS, name, FILE)).filter((file) => existsSync(file));
  const times = new Map(files.map((file) => [file, statSync(file).mtimeMs]));
  const [file] = files.sort((one, other) => (times.get(other) ?? 0) - (times.get(one) ?? 0));
  if (file !== undefined) return file;
  throw new CandidateError(`last: no run in ${join(process.cwd(), RUNS)} has a ${FILE}: give the folder of a run`);
}

function contentOf(file: string): unknown {
  let bytes: Uint8Array;
  try {
    bytes = readFileSync(file);
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (code !== "ENOENT") throw new CandidateError(`${file}: cannot be read: ${message}`);
    throw new CandidateError(
      `${file}: there is no such file or folder in ${process.cwd()}; give "last", or the folder of a run, which ` +
        `\`npx evolverpc show last\` prints as \`results in\`, or the ${FILE} in it`,
    );
  }
  return parsed(file, bytes, "the file");
}

function parsed(file: string, json: string | Uint8Array, what: string): unknown {
  try {
    return JSON.parse(typeof json === "string" ? json : new TextDecoder("utf-8", { fatal: true }).decode(json));
  } catch (error) {
    throw new CandidateError(`${file}: ${what} is not JSON: ${(error as Error).message}`);
  }
}

function texts(file: string, found: unknown): Record<string, string> {
  if (!isObject(found)) {
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

function compare(file: string, candidate: Record<string, string>, expected: Expected): void {
  const seed = seedOf(expected);
  const components = Array.isArray(seed) ? seed : Object.keys(seed);
  const run = runBeside(file);
  const missing = components.filter((name) => !Object.hasOwn(candidate, name)).sort();
  const extra = Object.keys(candidate).filter((name) => !components.includes(name));
  const faults = [
    ...(missing.length > 0 ? [`lacks ${missing.join(", ")}`] : []),
    ...(extra.length > 0 ? [`has ${extra.sort().join(", ")} besides`] : []),
    ...(isProgram(expected) ? faultsOfRun(run.program, expected) : []),
  ];
  if (faults.length > 0) {
    throw new CandidateError(
      `${file}: the candidate ${faults.join(" and ")}: it is of another program, or of another version of it`,
    );
  }
  const changed = Object.entries(seed).filter(
    ([name, text]) => typeof run.seed[name] === "string" && run.seed[name] !== text,
  );
  if (changed.length === 0) return;
  process.emitWarning(
    `${file}: the run of this candidate started from other texts of ${changed.map(([name]) => name).join(", ")} than the ` +
      "program's seed has: if the program has changed since, optimize it again",
    "CandidateWarning",
  );
}

function isProgram(expected: Expected): expected is CandidatesProgram {
  return "seedCandidate" in expected && typeof expected.seedCandidate !== "string";
}

/** The seed candidate, or the names of its components. */
function seedOf(expected: Expected): object {
  if (!isProgram(expected)) return expected;
  const { seedCandidate } = expected;
  const seed: unknown = typeof seedCandidate === "function" ? seedCandidate() : seedCandidate;
  if (isObject(seed) && !(seed instanceof Promise)) return seed;
  throw new CandidateError(
    "the program makes its `seedCandidate` asynchronously: give its seed candidate instead of the program",
  );
}

/** The program and the seed of the run whose result is beside the file; empty if there is none. */
function runBeside(file: string): { program: Record<string, unknown>; seed: Record<string, unknown> } {
  const result = join(dirname(file), RESULT);
  const found = statSync(result, { throwIfNoEntry: false })?.isFile() ? contentOf(result) : {};
  const { program, candidates } = isObject(found) ? found : {};
  const [seed]: unknown[] = Array.isArray(candidates) ? candidates : [];
  return { program: isObject(program) ? program : {}, seed: isObject(seed) ? seed : {} };
}

/** How the program differs from that of the run. */
function faultsOfRun(run: Record<string, unknown>, program: CandidatesProgram): string[] {
  return (["name", "version"] as const)
    .filter((key) => typeof run[key] === "string" && program[key] !== undefined && run[key] !== program[key])
    .map((key) => `was made for the program's ${key} ${shown(run[key])}, not ${shown(program[key])}`);
}
