/**
 * Route customer messages by a page of rules, and improve that page without a model.
 *
 * The candidate's one component, `rules`, is text with a rule in each line:
 *
 *     refund -> returns
 *     charged twice -> billing
 *     otherwise -> feature
 *
 * The first line that fits decides. A line fits if the message has, for each word on its left, a word that begins with
 * it: `refund` fits "Refunded?". `otherwise` fits every message. Other lines are ignored.
 *
 * `../python/tickets.py` is the same program: both give the same answers and write the same rules, character for
 * character, so words are ASCII only, and ties are decided by the order of the messages.
 */

import type { Candidate, FunctionProgram, ReflectiveDataset } from "evolverpc";

export interface Ticket {
  text: string;
  label: string;
}

/** The words of a message, and the desk it is for. */
type Lesson = { message: string[]; desk: string };

const SEED = `\
invoice -> billing
password -> account
parcel -> shipping
refund -> returns
crash -> bug
otherwise -> feature`;

const NEW_LINES = 5; // at most, in one proposal
const MOST_LINES = 40; // of a page that a proposal still adds to
const SHORTEST = 4; // letters of a word that a proposal adds

const RUN_OF_LETTERS = /[A-Za-z0-9]+/g;
const DIGITS = /^[0-9]+$/;
const FEEDBACK = /^expected: (.+), got: /s;

export const tickets: FunctionProgram<Ticket, string> = {
  name: "tickets",
  version: "2",
  seedCandidate: { rules: SEED },
  componentDescriptions: {
    rules:
      "One rule a line, `words -> desk`. The first line that fits decides; a line fits if each of its words begins " +
      "a word of the message. `otherwise -> desk` fits every message and stands last.",
  },

  run(example, candidate) {
    return deskOf(decidingLine(textOf(candidate, "rules").split("\n"), words(example.text)));
  },

  score(example, output) {
    if (typeof example.label !== "string") throw new TypeError("the example has no label");
    const got = output || "(nothing; rules are lines such as `invoice -> billing`)";
    return [output === example.label ? 1 : 0, `expected: ${example.label}, got: ${got}`];
  },

  /** Propose, for each component, its text with a few lines less and a few lines more. */
  proposeNewTexts(candidate, reflectiveDataset, componentsToUpdate) {
    const texts: Record<string, string> = {};
    for (const component of componentsToUpdate) {
      const lines = textOf(candidate, component).split("\n");
      texts[component] = improved(lines, [...lessons(reflectiveDataset[component] ?? [])]).join("\n");
    }
    return texts;
  },
};

function textOf(candidate: Candidate, component: string): string {
  const text = candidate[component];
  if (text === undefined) throw new Error(`the candidate has no component ${component}`);
  return text;
}

/** The distinct words of a text in its order: ASCII letters and digits, in lower case. */
function words(text: string): string[] {
  const runs: string[] = text.match(RUN_OF_LETTERS) ?? [];
  return [...new Set(runs.map((word) => word.toLowerCase()))];
}

function wordsOf(line: string): string[] {
  return words(line.split("->", 1).join());
}

function deskOf(line: string): string {
  const arrow = line.indexOf("->");
  return arrow < 0 ? "" : line.slice(arrow + 2).replace(/^[ \t\r]+|[ \t\r]+$/g, "");
}

function isOtherwise(line: string): boolean {
  return wordsOf(line).join(" ") === "otherwise";
}

/** The first line that fits the words of a message; "" if none does. */
function decidingLine(lines: string[], message: string[]): string {
  return lines.find((line) => fits(line, message)) ?? "";
}

function fits(line: string, message: string[]): boolean {
  const wanted = wordsOf(line);
  if (wanted.length === 0 || deskOf(line) === "") return false;
  return isOtherwise(line) || wanted.every((word) => begins(word, message));
}

function begins(word: string, message: string[]): boolean {
  return message.some((other) => other.startsWith(word));
}

/** The words and the expected desk of every record that has both. */
function* lessons(records: ReflectiveDataset[string]): Generator<Lesson> {
  for (const record of records) {
    const { Inputs: inputs, Feedback: feedback } = record;
    const text = isObject(inputs) ? inputs.text : inputs;
    const match = typeof feedback === "string" ? FEEDBACK.exec(feedback) : null;
    if (typeof text === "string" && match?.[1] !== undefined) yield { message: words(text), desk: match[1] };
  }
}

/** Remove the lines that do harm, then add the best new line, a few times. */
function improved(before: string[], messages: Lesson[]): string[] {
  const lines = before.filter((line) => isOtherwise(line) || harm(line, before, messages) < 2);
  for (let left = Math.min(NEW_LINES, MOST_LINES - lines.length); left > 0; left--) {
    const line = bestNewLine(lines, messages);
    if (line === undefined) break;
    const last = lines.findIndex(isOtherwise);
    lines.splice(last < 0 ? lines.length : last, 0, line);
  }
  return lines;
}

/** How many more messages the line sends to a wrong desk than to the right one. */
function harm(line: string, lines: string[], messages: Lesson[]): number {
  const decided = messages.filter(({ message }) => decidingLine(lines, message) === line);
  return decided.reduce((sum, { desk }) => sum + (desk === deskOf(line) ? -1 : 1), 0);
}

/**
 * The line that sets most messages right among those that no line but `otherwise` decides; undefined if none does.
 *
 * Its word is in two messages for its desk, and at least two thirds of all messages with that word are for that desk.
 */
function bestNewLine(lines: string[], messages: Lesson[]): string | undefined {
  const undecided: (Lesson & { got: string })[] = [];
  for (const lesson of messages) {
    const line = decidingLine(lines, lesson.message);
    if (line === "" || isOtherwise(line)) undecided.push({ ...lesson, got: deskOf(line) });
  }
  let best: string | undefined;
  let most = [0, 0, 0];
  for (const { message, desk, got } of undecided) {
    for (const word of got === desk ? [] : message) {
      if (word.length < SHORTEST || DIGITS.test(word)) continue;
      const there = undecided.filter((other) => begins(word, other.message));
      const fixed = there.filter((other) => other.desk === desk && other.got !== desk).length;
      const broken = there.filter((other) => other.desk === other.got && other.got !== desk).length;
      const all = messages.filter((other) => begins(word, other.message));
      const known = all.filter((other) => other.desk === desk).length;
      const worth = [fixed - broken, known, known - all.length];
      if (isMore(worth, most) && fixed > broken && known >= 2 && 3 * known >= 2 * all.length) {
        best = `${word} -> ${desk}`;
        most = worth;
      }
    }
  }
  return best;
}

/** Whether the first number that differs is greater. */
function isMore(these: number[], those: number[]): boolean {
  const at = these.findIndex((number, index) => number !== those[index]);
  return at >= 0 && (these[at] ?? 0) > (those[at] ?? 0);
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
