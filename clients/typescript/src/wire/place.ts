/** The example in whose asynchronous context code runs. */

import { type AsyncStorage, asyncStorage } from "../base/runtime.js";
import type { Call, ModelCallInWork } from "./call.js";
import type { ExampleCalls } from "./example-calls.js";

/** What is known where code of an example runs; other folders add to it. */
export interface Place {
  calls: ExampleCalls | undefined;
  /** The call of a model, known by its client, that runs here: what goes over the network is a part of it. */
  within?: ModelCallInWork | undefined;
  /** What keeps the text that the example writes. One storage for all: each costs time at every promise. */
  log?: { write(text: string): void } | undefined;
}

/** The places of all examples; the type of a place is that of the folder that asks. */
export const places: AsyncStorage<Place> | undefined = asyncStorage<Place>();

/** The calls of the examples that run. */
const running = new Set<ExampleCalls>();

/** Return what the work returns; meanwhile calls without an asynchronous context belong to its example, if no other runs. */
export async function whileRunning<Result>(calls: ExampleCalls, work: () => Promise<Result>): Promise<Result> {
  running.add(calls);
  try {
    return await work();
  } finally {
    running.delete(calls);
    calls.end();
  }
}

/** The calls of the example that runs here; undefined outside of one. */
export function currentCalls(): ExampleCalls | undefined {
  return places?.getStore()?.calls ?? (running.size === 1 ? [...running][0] : undefined);
}

/** Begin a call of the example that runs here; undefined outside of one. */
export function beginCall(host: string, method: string, path: string): Call | undefined {
  const place = places?.getStore();
  const calls = currentCalls();
  if (place?.within !== undefined) place.within.wasSeen = true;
  return calls?.begin(host, method, path, place?.within !== undefined);
}
