import { readdirSync, readFileSync } from "node:fs";
import fc from "fast-check";
import { expect, test } from "vitest";
import type { Mutation } from "../src/generated/events";
import { changedTexts, changesTo } from "../src/state/changes";
import { originsOf } from "../src/state/origins";
import type { Candidate } from "../src/state/reduce";
import { compare } from "../src/text/compare";
import { diffLines } from "../src/text/diff-lines";
import { line, visible } from "../src/text/visible";

const words = fc.array(fc.constantFrom("a", "b", "the", " ", "\n", ".", "\u00e9", "  "), { maxLength: 60 });

test("A comparison holds both texts, and marks only what differs", () => {
  fc.assert(
    fc.property(words, words, (before, after) => {
      const pieces = compare(before.join(""), after.join(""));
      const without = (kind: string) => pieces.map((piece) => (piece.kind === kind ? "" : piece.text)).join("");
      expect(without("add")).toBe(before.join(""));
      expect(without("del")).toBe(after.join(""));
      if (before.join("") === after.join("")) expect(pieces.every(({ kind }) => kind === "same")).toBe(true);
    }),
  );
  expect(compare("Be brief.\nAnswer now.\n", "Be polite.\nAnswer now.\n")).toEqual([
    { kind: "same", text: "Be " },
    { kind: "del", text: "brief" },
    { kind: "add", text: "polite" },
    { kind: "same", text: ".\nAnswer now.\n" },
  ]);
});

test("Long texts are compared in bounded time, without common words and with a single change", () => {
  const long = (word: string) => Array.from({ length: 20_000 }, (_, at) => `${word}${at}`).join(" ");
  const began = performance.now();
  expect(compare(long("a"), long("b")).map(({ kind }) => kind)).toEqual(["del", "add"]);
  const words = `${"word ".repeat(200_000)}`;
  const changed = `${words.slice(0, 500_000)}NEW ${words.slice(500_000)}`;
  expect(compare(words, changed).filter(({ kind }) => kind !== "same")).toEqual([{ kind: "add", text: "NEW " }]);
  expect(performance.now() - began).toBeLessThan(10_000);
});

test("Each part of a text is from the first candidate that had it, and a merge has the text of the parent with it", () => {
  const made = (index: number, parents: number[], text: string, omitted = 0) =>
    ({ index, parents, texts: { rules: { text, omitted } } }) as unknown as Candidate;
  const candidates = [
    made(0, [], "Read the message."),
    made(1, [0], "Read the whole message."),
    made(2, [1], "Read the whole message. Be brief."),
    made(3, [0, 2], "Read the whole message. Be brief."),
    made(4, [2], "Read", 30_000),
  ];
  const expected = [
    { text: "Read the ", candidate: 0 },
    { text: "whole ", candidate: 1 },
    { text: "message.", candidate: 0 },
    { text: " Be brief.", candidate: 2 },
  ];
  expect(originsOf(candidates, 2, "rules")).toEqual(expected);
  expect(originsOf(candidates, 3, "rules")).toEqual(expected);
  expect(originsOf(candidates, 4, "rules")).toEqual([{ text: "Read", candidate: 4 }]);
  expect(originsOf(candidates, 9, "rules")).toEqual([]);
});

test("In a diff the lines of code are marked, and not the names of files", () => {
  const header = "diff --git a/x b/x\n--- a/x\n+++ b/x\n";
  const found = diffLines(`${header}@@ -1,2 +1,2 @@\n same\n--- old\n+new\n${header}@@ -1 +1 @@\n-last`);
  expect(found.map(({ text }) => text).join("")).toContain("--- old\n+new\ndiff");
  expect(found.filter(({ kind }) => kind !== "same")).toEqual([
    { kind: "del", text: "--- old\n" },
    { kind: "add", text: "+new\n" },
    { kind: "del", text: "-last" },
  ]);
});

test("The changes of code to a candidate are those of its line alone", () => {
  const candidate = (index: number, parents: number[], commit: string) =>
    ({ index, parents, code: { branch: null, commit } }) as unknown as Candidate;
  const mutation = (at: number, commit: string | null) => ({ at, commit }) as unknown as Mutation;
  const candidates = [
    candidate(0, [], "seed"),
    candidate(1, [0], "a"),
    candidate(2, [0], "b"),
    candidate(3, [1], "a"),
    candidate(4, [3, 2], "a"),
    candidate(5, [4, 2], "ab"),
  ];
  const mutations = [mutation(1, "a"), mutation(2, "b"), mutation(3, null), mutation(4, "ab")];
  const places = candidates.map((each) => changesTo({ candidates, mutations }, each).map(({ at }) => at));
  expect(places).toEqual([[], [1], [2], [1], [1], [1, 2, 4]]);
});

test("Texts differ from those of another candidate by their words, or if the end of them is not known", () => {
  const texts = (given: Record<string, [text: string, omitted: number]>) => ({
    texts: Object.fromEntries(Object.entries(given).map(([name, [text, omitted]]) => [name, { text, omitted }])),
  });
  const other = texts({ same: ["a", 0], long: ["b", 9], changed: ["c", 0] });
  const found = changedTexts(texts({ same: ["a", 0], long: ["b", 9], changed: ["d", 0], added: ["e", 0] }), other);
  expect(found.map(([name]) => name)).toEqual(["long", "changed", "added"]);
});

test("Hidden characters become visible, and others stay", () => {
  expect(visible("a\u0000\u001b[31m\u007f\u009b")).toBe("a\u2400\u241b[31m\u2421\u27e8U+009B\u27e9");
  expect(visible("\u202eabc\u200b\ufeff")).toBe("\u27e8U+202E\u27e9abc\u27e8U+200B\u27e9\u27e8U+FEFF\u27e9");
  expect(visible("\ud800x\udc00")).toBe("\u27e8U+D800\u27e9x\u27e8U+DC00\u27e9");
  const kept = "tab\tline\nemoji \u{1f469}\u200d\u{1f4bb} \u05e9\u05dc\u05d5\u05dd";
  expect(visible(kept)).toBe(kept);
  expect(line("a  b\n\nc", 10)).toBe("a b c");
  expect(line("x".repeat(500), 10)).toHaveLength(10);
});

test("No source writes markup or code into the page", () => {
  const source = new URL("../src/", import.meta.url);
  const forbidden =
    /innerHTML|outerHTML|insertAdjacentHTML|document\.write|dangerouslySet|\beval\(|new Function|srcdoc/;
  for (const file of readdirSync(source, { recursive: true, encoding: "utf8" })) {
    if (!/\.tsx?$/.test(file)) continue;
    expect(forbidden.test(readFileSync(new URL(file, source), "utf8")), file).toBe(false);
  }
});
