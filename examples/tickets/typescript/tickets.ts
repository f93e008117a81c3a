/**
 * Route customer messages by a text of rules, and improve that text without a model.
 *
 * The candidate's one component, `rules`, is text such as
 *
 *     billing: charged 3, invoice 5
 *     shipping: invoice -2, parcel 4
 *
 * A message goes to the label whose words weigh most in it. `../python/tickets.py` is the same program: both give the
 * same answers and write the same rules, character for character, so words are ASCII only, weights are integers, and
 * everything is ordered by UTF-16 code unit, as JavaScript does.
 */

import type { Candidate, FunctionProgram, ReflectiveDataset } from "evolverpc";

export interface Ticket {
  text: string;
  label: string;
}

type Rules = Map<string, Map<string, number>>;
type Lesson = { message: Set<string>; expected: string };

const MARGIN = 8; // by how much the right label must lead before a message counts as learned
const PASSES = 10; // over the failed examples, at most, for one proposal

const RUN_OF_LETTERS = /[A-Za-z0-9]+/g;
const ENTRY = /^[ \t\r]*([a-z0-9]+)(?:[ \t]+(-?[0-9]{1,9}))?[ \t\r]*$/;
const FEEDBACK = /^expected: (.+), got: /s;

export const tickets: FunctionProgram<Ticket, string> = {
  name: "tickets",
  version: "1",
  seedCandidate: { rules: "" },
  componentDescriptions: {
    rules: "One line a label, `label: word weight, word weight`; the heaviest label wins.",
  },

  run(example, candidate) {
    return heaviest(readRules(textOf(candidate, "rules")), words(example.text));
  },

  score(example, output) {
    if (typeof example.label !== "string") throw new TypeError("the example has no label");
    const got = output || "(nothing; rules are lines such as `label: word 2, other -1`)";
    return [output === example.label ? 1 : 0, `expected: ${example.label}, got: ${got}`];
  },

  /** A perceptron in text: add a failed example's words to the expected label, weaken them in the wrong one. */
  proposeNewTexts(candidate, reflectiveDataset, componentsToUpdate) {
    const texts: Record<string, string> = {};
    for (const component of componentsToUpdate) {
      const rules = readRules(textOf(candidate, component));
      texts[component] = writeRules(learn(rules, lessons(reflectiveDataset[component] ?? [])));
    }
    return texts;
  },
};

function textOf(candidate: Candidate, component: string): string {
  const text = candidate[component];
  if (text === undefined) throw new Error(`the candidate has no component ${component}`);
  return text;
}

/** The message's distinct words of three characters and more, ASCII letters in lower case. */
function words(text: string): Set<string> {
  const runs: string[] = text.match(RUN_OF_LETTERS) ?? [];
  return new Set(runs.filter((word) => word.length >= 3).map((word) => word.toLowerCase()));
}

/** Label -> word -> weight. A line that is no rule is ignored; a word without a weight weighs 1. */
function readRules(text: string): Rules {
  const rules: Rules = new Map();
  for (const line of text.split("\n")) {
    const colon = line.lastIndexOf(":");
    const label = line.slice(0, Math.max(colon, 0)).replace(/^[ \t\r]+|[ \t\r]+$/g, "");
    if (label === "") continue;
    const weights = ofLabel(rules, label);
    for (const entry of line.slice(colon + 1).split(",")) {
      const [, word, weight] = ENTRY.exec(entry) ?? [];
      if (word !== undefined) add(weights, word, weight === undefined ? 1 : Number.parseInt(weight, 10));
    }
  }
  return rules;
}

function writeRules(rules: Rules): string {
  const lines: string[] = [];
  for (const label of [...rules.keys()].sort()) {
    const weights = ofLabel(rules, label);
    const heavy = [...weights.keys()].filter((word) => weights.get(word) !== 0).sort();
    if (heavy.length > 0) lines.push(`${label}: ${heavy.map((word) => `${word} ${weights.get(word)}`).join(", ")}`);
  }
  return lines.join("\n");
}

function ofLabel(rules: Rules, label: string): Map<string, number> {
  let weights = rules.get(label);
  if (weights === undefined) {
    weights = new Map();
    rules.set(label, weights);
  }
  return weights;
}

function add(weights: Map<string, number>, word: string, weight: number): void {
  weights.set(word, (weights.get(word) ?? 0) + weight);
}

function weigh(weights: Map<string, number> | undefined, message: Set<string>): number {
  let weight = 0;
  for (const word of message) weight += weights?.get(word) ?? 0;
  return weight;
}

/** The label with most weight in the message, the first in order of those that tie; "" where none has any. */
function heaviest(rules: Rules, message: Set<string>, without?: string): string {
  let best = "";
  let most = 0;
  for (const label of [...rules.keys()].sort()) {
    const weight = weigh(rules.get(label), message);
    if (label !== without && weight > most) [best, most] = [label, weight];
  }
  return best;
}

/** The words and expected label of every record that has both. */
function* lessons(records: ReflectiveDataset[string]): Generator<Lesson> {
  for (const record of records) {
    const { Inputs: inputs, Feedback: feedback } = record;
    const text = isObject(inputs) ? inputs.text : inputs;
    const match = typeof feedback === "string" ? FEEDBACK.exec(feedback) : null;
    if (typeof text === "string" && match?.[1] !== undefined) yield { message: words(text), expected: match[1] };
  }
}

/** Change the weights until every example's label leads by the margin, or the passes are over. */
function learn(rules: Rules, examples: Iterable<Lesson>): Rules {
  const all = [...examples];
  for (let pass = 0; pass < PASSES; pass++) {
    let failed = false;
    for (const { message, expected } of all) {
      const right = ofLabel(rules, expected);
      const wrong = rules.get(heaviest(rules, message, expected));
      if (weigh(right, message) - weigh(wrong, message) > MARGIN) continue;
      failed = true;
      for (const word of message) {
        add(right, word, 1);
        if (wrong) add(wrong, word, -1);
      }
    }
    if (!failed) break;
  }
  return rules;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
