/** The records of single steps for reflection, word for word those of the Python worker. */

import { PythonRandom } from "../base/python-random.js";
import { isObject } from "../base/values.js";
import type { ExampleResult, Step } from "../generated/types.js";
import { PARSE_FAILURE, stepsOf } from "../steps/steps.js";
import { type Images, MAX_BASE64, referenceTo } from "./images.js";

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
 * For each component the records of its own steps, at most one for each example.
 *
 * Of several steps the first that failed is taken, else one is drawn. `whole`: the records of the examples, for those
 * without steps of components, with the feedback on the component in place of that on the example. `seed`: of the draws,
 * from 0 to 2^53 - 1. `images` receives the images of the records.
 */
export async function stepRecords(
  results: readonly ExampleResult[],
  whole: readonly WholeRecord[],
  components: readonly string[],
  seed: number,
  images: Images,
): Promise<Record<string, StepRecord[]>> {
  const steps = results.map(({ trajectory }) => stepsOf(trajectory).filter(({ component }) => component));
  const random = new PythonRandom(seed);
  const dataset = new Map<string, StepRecord[]>();
  for (const component of components) {
    const records: StepRecord[] = [];
    for (const [at, result] of results.entries()) {
      const own = steps[at] as Step[];
      const record = whole[at] as WholeRecord;
      const feedback = new Map(Object.entries(result.component_feedback ?? {})).get(component) || record.Feedback;
      const found = own.filter((step) => step.component === component);
      if (own.length === 0) records.push({ ...record, Feedback: feedback });
      if (found.length === 0) continue;
      const step = found.find(({ error }) => error) ?? random.choice(found);
      records.push(await stepRecord(step, feedback, images));
    }
    dataset.set(component, records);
  }
  return Object.fromEntries(dataset);
}

/** The record of one step. `feedback`: that on its component, else that on the example. */
async function stepRecord(step: Step, feedback: string, images: Images): Promise<StepRecord> {
  const { inputs, error } = step;
  const isUnparsed = error?.type === PARSE_FAILURE;
  return {
    Inputs: withContext(await withReferences(inputs ?? {}, images)),
    "Generated Outputs": isUnparsed ? unparsed(step.raw ?? "") : await withReferences(step.outputs ?? "", images),
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

/** The value with a reference in place of each image given as the text of a data URL. */
async function withReferences(value: unknown, images: Images): Promise<unknown> {
  if (typeof value === "string") return value.startsWith("data:image/") ? withoutDataUrl(value, images) : value;
  if (Array.isArray(value)) return Promise.all(value.map((part) => withReferences(part, images)));
  if (!isObject(value)) return value;
  const fields = Object.entries(value).map(async ([name, part]) => [name, await withReferences(part, images)]);
  return Object.fromEntries(await Promise.all(fields));
}

async function withoutDataUrl(text: string, images: Images): Promise<unknown> {
  const [, mediaType, base64] = DATA_URL.exec(text) ?? [];
  if (mediaType === undefined || base64 === undefined || base64.length % 4 !== 0) return text;
  if (base64.length > MAX_BASE64) return { type: mediaType, repr: `an image of ${base64.length} characters in base64` };
  return referenceTo({ media_type: mediaType, base64 }, images);
}
