/** The default records for reflection, word for word those of the Python worker. */

import type { EvalBatch, ExampleResult } from "../generated/types.js";
import type { ReflectiveDataset } from "../program/program.js";
import { stepRecords, type WholeRecord } from "./component-records.js";
import type { Images } from "./images.js";

/**
 * The records of the steps of each component; for an example without steps of components its inputs, outputs and
 * feedback, for every component.
 *
 * `isOwn`: whether a trajectory without steps is one the program recorded itself, to be shown as `Trace`. `seed`: of the
 * choice between several steps of a component. Images in steps are given by reference.
 */
export async function defaultReflectiveDataset(
  { batch, results }: EvalBatch,
  components: readonly string[],
  isOwn: (trajectory: unknown) => boolean,
  seed: number,
): Promise<{ dataset: ReflectiveDataset; images?: Images }> {
  const whole = results.map((result, at) => wholeRecord(batch[at]?.data, result, isOwn));
  const images: Images = {};
  const dataset = await stepRecords(results, whole, components, seed, images);
  return Object.keys(images).length === 0 ? { dataset } : { dataset, images };
}

function wholeRecord(data: unknown, result: ExampleResult, isOwn: (trajectory: unknown) => boolean): WholeRecord {
  const { trajectory } = result;
  const traced = trajectory !== undefined && trajectory !== null && isOwn(trajectory);
  return {
    Inputs: data,
    "Generated Outputs": result.output ?? "",
    Feedback: feedback(result),
    ...(traced ? { Trace: trajectory } : {}),
  };
}

function feedback({ feedback, error, score }: ExampleResult): string {
  if (feedback) return feedback;
  if (!error) return `Score: ${score === null ? "None" : floatText(score)}`;
  const summary = `The program failed: ${error.type}: ${error.message}`;
  return error.traceback ? `${summary}\n${error.traceback}` : summary;
}

/** A number as Python's `repr` writes a float, so that the same scores give the same prompts in both languages. */
export function floatText(value: number): string {
  const [digits = "", exponent] = value.toExponential().split("e");
  const power = Number(exponent);
  if (value !== 0 && (power < -4 || power >= 16)) {
    const sign = power < 0 ? "-" : "+";
    return `${digits}e${sign}${String(Math.abs(power)).padStart(2, "0")}`;
  }
  const text = Object.is(value, -0) ? "-0" : plainDecimal(digits, power);
  return text.includes(".") ? text : `${text}.0`;
}

/** `1.5e-3` without its exponent. */
function plainDecimal(digits: string, power: number): string {
  const sign = digits.startsWith("-") ? "-" : "";
  const bare = digits.replace("-", "").replace(".", "");
  if (power < 0) return `${sign}0.${"0".repeat(-power - 1)}${bare}`;
  const whole = bare.padEnd(power + 1, "0");
  const fraction = whole.slice(power + 1);
  return `${sign}${whole.slice(0, power + 1)}${fraction === "" ? "" : `.${fraction}`}`;
}
