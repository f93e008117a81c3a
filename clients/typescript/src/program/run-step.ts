/** The types of a step, as a program runs it. */

import type { Usage } from "../generated/types.js";

/** What a step is of: the name of a component, or `{ name }` of a step without one, such as a tool. */
export type StepLabel<Component extends string = string> =
  | Component
  | { component?: Component | null; name?: string | null };

/** A running step, as the function of the step gets it. */
export interface StepHandle {
  /** What the step cost. */
  usage: Usage;
  /** What came out of the step; default: the result of its function. */
  outputs: unknown;
}

/** What a step returns: the result of its function, as a `Promise` if that can be awaited. */
export type StepResult<Result> = Result extends PromiseLike<infer Value> ? Promise<Value> : Result;

/**
 * Run `fn` as a step of a component and return its result.
 *
 * `inputs`: what goes into the step, by name. The step's outputs are the result of `fn`, its error is what `fn` throws.
 * Steps that `fn` runs are steps within this one.
 */
export type RunStep<Component extends string = string> = <Result>(
  label: StepLabel<Component>,
  inputs: object,
  fn: (step: StepHandle) => Result,
) => StepResult<Result>;
