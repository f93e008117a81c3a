/** The records of single steps for reflection, word for word those of the Python worker. */

import type { ExampleResult, Step } from "./generated/types.js";
import { Image, MAX_BASE64 } from "./images.js";
import { PythonRandom } from "./python-random.js";
import { PARSE_FAILURE, stepsOf } from "./steps.js";
import { isObject } from "./values.js";

type StepRecord = Record<string, unknown>;

const DATA_URL = /^data:(image\/[a-z0-9.+-]{1,94});base64,([A-Za-z0-9+/]+={0,2})$/;

/** What the record of an example as a whole holds. */
export type WholeRecord = {
  Inputs: unknown;
  "Generated Outputs": unknown;
  Feedback: string;
  Trace?: unknown;
};

/**
 * For each component the records of its own steps, at most one for each example; undefined if no result has steps.
 *
 * Of several steps the first that failed is taken, else one is drawn. `whole`: the records of the examples, for those
 * without steps. `seed`: of the draws, from 0 to 2^53 - 1.
 */
export function stepRecords(
  results: readonly ExampleResult[],
  whole: readonly WholeRecord[],
  components: readonly string[],
  seed: number,
): Record<string, StepRecord[]> | undefined {
  const steps = results.map(({ trajectory }) => stepsOf(trajectory));
  if (steps.every((own) => own.length === 0)) return undefined;
  const random = new PythonRandom(seed);
  const recordsOf = (component: string): StepRecord[] =>
    results.flatMap((result, at): StepRecord[] => {
      const own = steps[at] as Step[];
      const record = whole[at] as WholeRecord;
      if (own.length === 0) return [record];
      const found = own.filter((step) => step.component === component);
      if (found.length === 0) return [];
      const step = found.find(({ error }) => error) ?? random.choice(found);
      return [stepRecord(step, result.component_feedback?.[component] || record.Feedback)];
    });
  return Object.fromEntries(components.map((component) => [component, recordsOf(component)]));
}

/** The record of one step. `feedback`: that on its component, else that on the example. */
export function stepRecord(step: Step, feedback: string): StepRecord {
  const { inputs, error } = step;
  const isUnparsed = error?.type === PARSE_FAILURE;
  return {
    Inputs: withContext(withImages(inputs ?? {})),
    "Generated Outputs": isUnparsed ? unparsed(step.raw ?? "") : withImages(step.outputs ?? ""),
    Feedback: isUnparsed ? structure(step) : error ? `${failure(error)}\n${feedback}` : feedback,
  };
}

function unparsed(raw: string): string {
  const problem = "Couldn't parse the output as per the expected output format. The model's raw response was:";
  return `${problem}\n\`\`\`\n${raw}\n\`\`\`\n\n`;
}

function structure({ error, expected }: Step): string {
  if (expected) return `Your output failed to parse. Follow this structure:\n${expected}`;
  return `Your output failed to parse: ${error?.message}`;
}

function failure({ type, message }: { type: string; message: string }): string {
  return `This step failed: ${type}: ${message}`;
}

/** The inputs with their first chat history as text, at the beginning. */
function withContext(inputs: unknown): unknown {
  if (!isObject(inputs)) return inputs;
  const [name, history] = Object.entries(inputs).find(([, value]) => isChatHistory(value)) ?? [];
  if (name === undefined) return inputs;
  const lines = (history as object[]).map((message, at) => `  ${at}: ${JSON.stringify(message)}\n`);
  const others = Object.entries(inputs).filter(([other]) => other !== name);
  return { Context: `\`\`\`json\n${lines.join("")}\`\`\``, ...Object.fromEntries(others) };
}

function isChatHistory(value: unknown): boolean {
  const isMessage = (message: unknown): boolean =>
    isObject(message) && typeof message.role === "string" && "content" in message;
  return Array.isArray(value) && value.length > 0 && value.every(isMessage);
}

/** The value with each image given as the text of a data URL as an `Image`. */
function withImages(value: unknown): unknown {
  if (typeof value === "string") return imageOf(value) ?? value;
  if (Array.isArray(value)) return value.map(withImages);
  if (!isObject(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, withImages(part)]));
}

function imageOf(text: string): unknown {
  if (!text.startsWith("data:image/")) return undefined;
  const [, mediaType, base64] = DATA_URL.exec(text) ?? [];
  if (mediaType === undefined || base64 === undefined || base64.length % 4 !== 0) return undefined;
  if (base64.length > MAX_BASE64) return { type: mediaType, repr: `an image of ${base64.length} characters in base64` };
  return new Image(base64, mediaType);
}
