/** The example and the step in whose asynchronous context code runs. */

import type { Usage } from "../generated/types.js";
import type { ModelCallInWork } from "../wire/call.js";
import { type Place as AnyPlace, places } from "../wire/place.js";
import type { RecordedStep, StepRecorder } from "./step-recorder.js";

export type OnUsage = (usage: Usage) => void;

/** The example in whose asynchronous context the caller runs. */
export interface Place extends AnyPlace {
  /** What records its steps, if its trajectory is wanted. */
  recorder: StepRecorder | undefined;
  /** The step of the program's own that runs. */
  around: RecordedStep | undefined;
  /** Receives what calls of models cost. */
  onUsage: OnUsage | undefined;
}

/** Where the caller runs; undefined outside of an example. */
export function currentPlace(): Place | undefined {
  return places?.getStore() as Place | undefined; // only `inPlace` sets one
}

/** Run work in a place; as it is, in a runtime that cannot follow asynchronous calls. */
export function inPlace<Result>(place: Place, work: () => Result): Result {
  return places === undefined ? work() : places.run({ ...place, log: places.getStore()?.log }, work);
}

/**
 * Run what makes a recorded call of a model: calls that it makes are parts of it.
 *
 * `counts`: whether its usage is counted there, and not by calls within.
 */
export function inModelCall<Result>(within: ModelCallInWork, counts: boolean, make: () => Result): Result {
  const place = currentPlace();
  if (place === undefined) return make();
  return inPlace({ ...place, ...(counts && { onUsage: undefined }), within }, make);
}
