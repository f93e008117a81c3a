// The texts of a run's best candidate, from its file or its folder.
import { mkdirSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { expect, expectTypeOf, it, onTestFinished, vi } from "vitest";
import { CandidateError, defineProgram, loadCandidate, saveCandidate } from "../src/index.js";
import { temporaryFolder } from "./support.js";

function written(content: unknown, name = "best_candidate.json"): string {
  const file = join(temporaryFolder(), name);
  writeFileSync(file, typeof content === "string" || Buffer.isBuffer(content) ? content : JSON.stringify(content));
  return file;
}

it("a candidate is read from its file and from the folder of its run", () => {
  const file = written({ prompt: "Answer.", style: "" });
  expect(loadCandidate(file)).toEqual({ prompt: "Answer.", style: "" });
  expect(loadCandidate(join(file, ".."), ["style", "prompt"])).toEqual({ prompt: "Answer.", style: "" });
});

it("texts that code changes added are included, and the commit is not", () => {
  const added = JSON.stringify({ extra: "new" });
  const file = written({ prompt: "p", git_branch: `evolve/r/1@${"a".repeat(40)}`, added_components: added });
  expect(loadCandidate(file, { prompt: "", extra: "" })).toEqual({ prompt: "p", extra: "new" });
});

it("every text survives being saved and loaded, in every component", () => {
  const special = fc.constantFrom("__proto__", "constructor", "\ud800", "\0", "\ufeff", "\u2028\r\n", "");
  const text = fc.oneof(special, fc.string({ unit: "binary" }));
  const file = join(temporaryFolder(), "texts.json");
  fc.assert(
    fc.property(fc.dictionary(text, text), (candidate) => {
      saveCandidate(file, candidate);
      expect(Object.entries(loadCandidate(file)).sort()).toEqual(Object.entries(candidate).sort());
    }),
    { numRuns: 30, examples: [[Object.fromEntries([["__proto__", "\ud800\0\ufeff"]])]] },
  );
  expect(() => saveCandidate(file, { prompt: 3 as never })).toThrow(/`prompt` is 3, not a text/);
});

it("a byte order mark is skipped, and bytes that are not UTF-8 are refused", () => {
  expect(loadCandidate(written('\ufeff{"prompt": "p"}'))).toEqual({ prompt: "p" });
  expect(() => loadCandidate(written(Buffer.from([0x22, 0xff, 0x22])))).toThrow(/not JSON/);
});

const program = defineProgram({
  name: "tickets",
  version: "2",
  seedCandidate: { planner: "Plan.", writer: "Write." },
  run: (row: string, { planner, writer }) => [row, planner, writer].join(),
});
const texts = { planner: "Plan well.", writer: "Write well." };

it("a candidate has the components of its program, in types and at run time", () => {
  const file = written(texts);
  const candidate = loadCandidate(file, program);
  expectTypeOf(candidate).toEqualTypeOf<{ planner: string; writer: string }>();
  expectTypeOf(loadCandidate<typeof program>(file)).toEqualTypeOf(candidate);
  expectTypeOf(loadCandidate(file, ["planner", "writer"])).toEqualTypeOf(candidate);
  expectTypeOf(loadCandidate(file, { planner: "", writer: "" })).toEqualTypeOf(candidate);
  expectTypeOf(loadCandidate(file)).toEqualTypeOf<Record<string, string>>();
  expect(candidate).toEqual(texts);
  expect(loadCandidate(file, { ...program, seedCandidate: () => texts })).toEqual(texts);
  expect(() => loadCandidate(file, { ...program, seedCandidate: { planner: "" } })).toThrow(/has writer besides/);
  const later = { ...program, seedCandidate: async () => texts };
  expect(() => loadCandidate(file, later)).toThrow(/give its seed candidate instead of the program/);
});

it("texts and steps of unknown components do not compile", () => {
  const { name, seedCandidate } = program;
  // @ts-expect-error: there is no `planer`
  defineProgram({ name, seedCandidate, run: (_row: string, { planer }) => planer });
  // @ts-expect-error: there is no `planer`
  defineProgram({ name, seedCandidate, run: (_row: string, _texts, { step }) => step("planer", {}, () => 1) });
  expectTypeOf(defineProgram({ name, score: (_row: string, output: number) => output }).score).toBeFunction();
  const batches = defineProgram({
    name,
    seedCandidate,
    evaluate: ({ planner }, batch) => batch.map(() => planner.length),
  });
  expect(batches.seedCandidate).toBe(seedCandidate);
});

it("a candidate of a run of another program or version is refused, if the run's result is beside it", () => {
  const file = written(texts);
  const beside = (run: object) => writeFileSync(join(file, "..", "result.json"), JSON.stringify({ program: run }));
  beside({ name: "tickets", version: null, digest: "1" });
  expect(loadCandidate(file, program)).toEqual(texts);
  beside({ name: "mails", version: "1" });
  expect(() => loadCandidate(join(file, ".."), program)).toThrow(
    `the candidate was made for the program's name "mails", not "tickets" and was made for the program's version "1", ` +
      `not "2": it is of another program`,
  );
});

it("a seed that differs from the run's is a warning that names the components", () => {
  const warned = vi.spyOn(process, "emitWarning").mockImplementation(() => {});
  onTestFinished(() => warned.mockRestore());
  const file = written(texts);
  const beside = (seed: object) =>
    writeFileSync(join(file, "..", "result.json"), JSON.stringify({ candidates: [seed] }));
  const seed = { planner: "Plan.", writer: "Write." };
  beside(seed);
  for (const expected of [program, seed, ["planner", "writer"]]) loadCandidate(file, expected);
  expect(warned).not.toHaveBeenCalled();
  beside({ planner: "Plan.", writer: "Write in verse." });
  expect(loadCandidate(file, ["planner", "writer"])).toEqual(texts);
  expect(warned).not.toHaveBeenCalled();
  expect(loadCandidate(file, program)).toEqual(texts);
  expect(warned).toHaveBeenCalledExactlyOnceWith(
    expect.stringContaining("started from other texts of writer than the program's seed has"),
    "CandidateWarning",
  );
});

it("missing and additional components are named", () => {
  const file = written({ prompt: "p", other: "o" });
  expect(() => loadCandidate(file, { prompt: "", style: "" })).toThrow(
    /the candidate lacks style and has other besides/,
  );
});

it.each([
  ["{", /not JSON/],
  ["[1]", /a JSON object of texts by component is expected/],
  [{ prompt: 3 }, /not a candidate: `prompt` is 3, not a text/],
  [{ prompt: "p", added_components: "{" }, /`added_components` is not JSON/],
  [{ candidates: [{ prompt: "p" }], best_idx: 0 }, /is the whole result of a run: give .*best_candidate\.json/],
])("a file that holds %j is refused", (content, message) => {
  const read = () => loadCandidate(written(content));
  expect(read).toThrow(message);
  expect(read).toThrow(CandidateError);
});

it("last is the newest run of the working directory", () => {
  const here = temporaryFolder();
  const before = process.cwd();
  process.chdir(here);
  onTestFinished(() => process.chdir(before));
  expect(() => loadCandidate("last")).toThrow(/^last: no run in .*runs has a best_candidate\.json/);
  for (const [number, name] of ["newer", "older"].entries()) {
    mkdirSync(join(here, "runs", name), { recursive: true });
    const file = join(here, "runs", name, "best_candidate.json");
    saveCandidate(file, { prompt: name });
    utimesSync(file, 1000 - number, 1000 - number);
  }
  mkdirSync(join(here, "runs", "empty"));
  expect(loadCandidate("last")).toEqual({ prompt: "newer" });
  saveCandidate(join(here, "last"), { prompt: "own" });
  expect(loadCandidate("last")).toEqual({ prompt: "own" });
});

it("what is no path is answered with the ways to name a run", () => {
  expect(() => loadCandidate("2026-run")).toThrow(
    /^2026-run: there is no such file or folder in .*; give "last", or the folder of a run/,
  );
});

it("a file that cannot be read and a folder without a result are refused", () => {
  const empty = temporaryFolder();
  expect(() => loadCandidate(empty)).toThrow(/holds no best_candidate\.json: give the folder of one run/);
  mkdirSync(join(empty, "best_candidate.json"));
  expect(() => loadCandidate(empty)).toThrow(CandidateError);
});
