// Find the intent of a message to a bank: npx tsx banking77.ts [ROWS.jsonl]
import { openai } from "@ai-sdk/openai";
import { generateText, Output } from "ai";
import { optimize, readRows, splitRows } from "evolverpc";
import { z } from "zod";

const rows = await readRows(process.argv[2] ?? "data/banking.jsonl", z.object({ text: z.string(), label: z.string() }));
const labels = [...new Set(rows.map(({ label }) => label))].sort();
const { train, val } = splitRows(rows, { val: 0.5 }, 43);

const { bestCandidate, seedScore, bestScore } = await optimize({
  program: {
    name: "banking77",
    seedCandidate: { system: `Classify the message of a bank's customer. Intents: ${labels.join(", ")}` },
    run: async ({ text }, { system }) => {
      const output = Output.choice({ options: labels });
      return (await generateText({ model: openai("gpt-4o-mini"), system, prompt: text, output })).output;
    },
    score: ({ label }, output) => (output === label ? [1, "Right."] : [0, `Expected ${label}, not ${output}.`]),
  },
  trainset: train,
  valset: val,
  reflectionLm: "openai/gpt-5",
  maxMetricCalls: 150,
});
console.log(`${seedScore} -> ${bestScore}\n${bestCandidate.system}`);
