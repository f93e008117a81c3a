// Optimizes a program that learns words; options that functions cannot be are given as JSON.
import { optimize } from "../../src/index.js";

const { TEST_NEEDS: needed } = process.env;
if (needed !== undefined && !(needed in globalThis)) throw new Error(`nothing has set ${needed}`);

interface Row {
  text: string;
  label: "billing" | "other";
}

const KINDS = ["order", "bill", "card", "tax"];
export const rows = (count: number, from: number): Row[] =>
  Array.from({ length: count }, (_, at) => {
    const kind = (at + from) % 4;
    return { text: `about my ${KINDS[kind]} ${at + from}`, label: kind % 2 === 1 ? "billing" : "other" };
  });

export const program = {
  name: "words",
  seedCandidate: { words: "nothing" },
  run: async ({ text }: Row, { words = "" }: Record<string, string>) => {
    const [, , kind, number] = text.split(" ");
    if (process.env.TEST_HARM === "loop") while (number === "3");
    if (process.env.TEST_HARM === "exit" && number === "3") process.exit(7);
    await new Promise((resolve) => setTimeout(resolve, Number(process.env.TEST_DELAY_MS ?? 0)));
    return words.split(" ").includes(kind ?? "") ? "billing" : "other";
  },
  score: ({ label }: Row, output: string): [number, string] => [output === label ? 1 : 0, `expected ${label}`],
};

export const given = {
  program,
  trainset: rows(20, 0),
  valset: rows(8, 20),
  testset: rows(8, 28),
  propose: ({ words = "" }: Record<string, string>, dataset: Record<string, Record<string, unknown>[]>) => {
    const missed = dataset.words?.find((record) => record.Feedback === "expected billing");
    return { words: `${words} ${(missed?.Inputs as Row | undefined)?.text.split(" ")[2] ?? "x"}` };
  },
  maxMetricCalls: 120,
  check: "off" as const,
};

if (process.argv[1]?.match(/optimizing\.[jt]s$/)) {
  const { bestScore, runId } = await optimize({ ...given, ...JSON.parse(process.argv[2] ?? "{}") });
  console.log(JSON.stringify({ bestScore, runId }));
}
