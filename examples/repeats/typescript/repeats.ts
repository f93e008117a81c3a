/** Find the first word of a text that was there before, regardless of case and punctuation. */

import type { FunctionProgram } from "evolverpc";

export interface Example {
  text: string;
  answer: string;
}

export const repeats: FunctionProgram<Example, string> = {
  name: "repeats",
  seedCandidate: { ignored: "a an and of the to" },
  componentDescriptions: { ignored: "Words that may come again, between spaces." },

  run(example, candidate) {
    return firstRepeat(example.text, candidate.ignored ?? "");
  },

  score(example, output) {
    if (output === example.answer) return [1, "right"];
    return [0, `expected ${JSON.stringify(example.answer)}, got ${JSON.stringify(output)}`];
  },
};

/** The first word that was there before, as `plain` makes it; "" if there is none. */
export function firstRepeat(text: string, ignored: string): string {
  const words = text.split(/\s+/).filter((word) => word !== "");
  for (const [at, word] of words.entries()) {
    const before = words.slice(0, at).map(plain);
    if (before.includes(word) && !ignored.split(" ").includes(word)) return plain(word);
  }
  return "";
}

function plain(word: string): string {
  return word.replace(/^[.,;:!?"'()]+|[.,;:!?"'()]+$/g, "").toLowerCase();
}
