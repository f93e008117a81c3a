// The texts of a run's best candidate, from its file or its folder.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it, onTestFinished } from "vitest";
import { CandidateError, loadCandidate } from "../src/index.js";

function folder(): string {
  const made = mkdtempSync(join(tmpdir(), "evolverpc-test-"));
  onTestFinished(() => rmSync(made, { recursive: true }));
  return made;
}

function written(content: unknown, name = "best_candidate.json"): string {
  const file = join(folder(), name);
  writeFileSync(file, typeof content === "string" ? content : JSON.stringify(content));
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

it.each([
  ["last", ""],
  ["2026-run", "; did you mean runs/2026-run?"],
])("%s is no path and is answered with the ways to name a run", (given, meant) => {
  const here = folder();
  mkdirSync(join(here, "runs", "2026-run"), { recursive: true });
  const before = process.cwd();
  process.chdir(here);
  onTestFinished(() => process.chdir(before));
  expect(() => loadCandidate(given)).toThrow(
    `${given}: there is no such file or folder in ${here}${meant}; give the folder of a run, which ` +
      "`gepa-client show last` prints as `results in`, or the best_candidate.json in it",
  );
});

it("a file that cannot be read and a folder without a result are refused", () => {
  const empty = folder();
  expect(() => loadCandidate(empty)).toThrow(/holds no best_candidate\.json: give the folder of one run/);
  mkdirSync(join(empty, "best_candidate.json"));
  expect(() => loadCandidate(empty)).toThrow(CandidateError);
});
