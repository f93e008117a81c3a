// Judge which of two responses to a question is better: npx tsx judge.ts
import { openai } from "@ai-sdk/openai";
import { generateText, Output } from "ai";
import { optimize } from "evolverpc";
import { z } from "zod";

const LABELS = ["A>B", "B>A"] as const;

const { bestCandidate, seedScore, bestScore } = await optimize({
  program: {
    name: "judge",
    seedCandidate: { judge: "Read the question and determine which response is better: A>B or B>A." },
    rowSchema: z.object({ question: z.string(), a: z.string(), b: z.string(), label: z.enum(LABELS) }),
    run: async ({ question, a, b }, { judge }) => {
      const prompt = `Question: ${question}\n\nResponse A: ${a}\n\nResponse B: ${b}`;
      const output = Output.choice({ options: [...LABELS] });
      return (await generateText({ model: openai("gpt-4o-mini"), system: judge, prompt, output })).output;
    },
    score: ({ label }, output) => (output === label ? [1, "Right."] : [0, `The better one: ${label}.`]),
  },
  trainset: "data/judge.jsonl",
  reflectionLm: "openai/gpt-5",
  valFraction: 0.4,
  maxMetricCalls: 150,
});
console.log(`${seedScore} -> ${bestScore}\n${bestCandidate.judge}`);
