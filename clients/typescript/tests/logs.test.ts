// What a program writes while an example runs is kept with that example, and with no other.
import { expect, it } from "vitest";
import { ExampleLog } from "../src/evaluate/example-log.js";
import type { RunningServer } from "../src/server/serve.js";
import { type Child, nextMessage, started } from "./processes.js";
import { evaluate } from "./support.js";

const WORDS = ["a", "b", "c"].map((name) => Array.from({ length: 10 }, (_, at) => `${name}${at}`));

const written = (words: string[]): string => words.map((word) => `${word}\n${word}!\n`).join("");

/** A program served with a deadline for each example, in seconds, and the results of its examples; they run at the same time. */
const WAYS: Record<
  string,
  (deadlineS: number) => Promise<{ child: Child; results: (...data: object[]) => Promise<any[]> }>
> = {
  serve: async (deadlineS) => {
    const child = started("tests/programs/writes.ts", ["serve", String(deadlineS)]);
    const { url, token } = await nextMessage(child);
    const server = { url, token } as RunningServer;
    return { child, results: (...data) => evaluate(server, data) };
  },
  serveStdio: async (deadlineS) => {
    const child = started("tests/programs/writes.ts", ["stdio", String(deadlineS)]);
    const results = async (...data: object[]): Promise<any[]> => {
      data.forEach((one, id) => {
        const params = { candidate: { rules: "" }, batch: [{ id: "a", data: one }] };
        child.process.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", id, method: "evaluate", params })}\n`);
      });
      const found: any[] = [];
      for (const _ of data) {
        const { id, result } = await nextMessage(child);
        found[id] = result.results[0];
      }
      return found;
    };
    return { child, results };
  },
};

it.each(Object.keys(WAYS))("%s keeps the logs of examples that run at the same time apart", async (way) => {
  const { child, results } = await (WAYS[way] as (typeof WAYS)[string])(60);
  const [first, second, failed] = await results(
    ...WORDS.map((words, at) => (at === 2 ? { words, fail: "no luck" } : { words })),
  );
  expect([first.log, second.log]).toEqual(WORDS.slice(0, 2).map((words) => `${written(words)}scored\n`));
  expect(failed.error).toMatchObject({ message: "no luck", log: written(WORDS[2] as string[]) });
  expect(failed).not.toHaveProperty("log");
  const [quiet] = await results({});
  expect(quiet.log).toBe("scored\n");
  const [long] = await results({ flood: 20_000 });
  const [start, leftOut, end] = (long.log as string).split(/\n… (.*) characters left out …\n/) as [
    string,
    string,
    string,
  ];
  expect(start.startsWith("000000000\n000000001\n")).toBe(true);
  expect(end.endsWith("\n000019999\nscored\n")).toBe(true);
  expect(Number(leftOut.replaceAll(",", ""))).toBe(200_000 + "scored\n".length - start.length - end.length);
  expect(start.length + end.length).toBeLessThanOrEqual(16_384);
  child.process.kill("SIGTERM");
  await child.ended;
  const shown = way === "serve" ? await rest(child) : child.stderr();
  expect(shown.includes("a0\n")).toBe(true);
});

it.each(["x", "😀"])("a long line of %s keeps its beginning and its end, cut between characters", (character) => {
  for (const shift of ["", "s"]) {
    const log = new ExampleLog();
    log.write(`before\n${shift}${character.repeat(20_000)}\nafter\n`);
    const [first, leftOut, last] = log.text.split(/\n… (.*) characters left out …\n/) as [string, string, string];
    expect(first).toMatch(new RegExp(`^before\n${shift}(${character})+$`, "u"));
    expect(last).toMatch(new RegExp(`^(${character})+\nafter\n$`, "u"));
    const kept = first.length + last.length;
    expect(kept).toBeGreaterThan(16_380);
    expect(Number(leftOut.replaceAll(",", ""))).toBe(14 + shift.length + 20_000 * character.length - kept);
  }
});

it("an example past its deadline keeps its log", async () => {
  const { results } = await (WAYS.serve as (typeof WAYS)[string])(0.5);
  const [late, other] = await results({ words: ["x"], hang: true }, { words: ["y"] });
  expect(late.error).toMatchObject({ type: "timeout", log: "x\nx!\n" });
  expect(other.log).toBe("y\ny!\nscored\n");
});

async function rest({ lines }: Child): Promise<string> {
  let text = "";
  for (let next = await lines.next(); !next.done; next = await lines.next()) text += `${next.value}\n`;
  return text;
}
