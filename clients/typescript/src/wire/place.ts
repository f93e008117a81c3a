/** The example in whose asynchronous context code runs. */

import { type AsyncStorage, asyncStorage } from "../base/runtime.js";
import type { Usage } from "../generated/types.js";
import type { Call, ExampleCalls, ModelCallInWork } from "./example-calls.js";

/** What is known where code of an example runs; the recorder of steps adds to it. One storage holds it all: each costs time at every promise. */
export interface Place {
  /** The id of the request of the server that started this process. */
  request?: number;
  calls?: ExampleCalls | undefined;
  /** The call of a model, known by its client, that runs here: what goes over the network is a part of it. */
  within?: ModelCallInWork | undefined;
  /** What keeps the text that the example writes. */
  log?: { write(text: string): void };
  /** Receives what calls of models cost. */
  onUsage?: ((usage: Usage) => void) | undefined;
}

const places: AsyncStorage<Place> | undefined = asyncStorage<Place>();

/** The places of the examples that run. */
const running = new Set<Place>();

/** What is known where the caller runs; undefined outside of a request. */
export function currentPlace(): Place | undefined {
  return places?.getStore();
}

/** Run work where more is known; as it is, in a runtime that cannot follow asynchronous calls. */
export function inPlace<Result>(more: Place, work: () => Result): Result {
  return places === undefined ? work() : places.run({ ...places.getStore(), ...more }, work);
}

/** The place of the only example that runs; undefined if there are several. */
export function onlyPlace(): Place | undefined {
  return running.size === 1 ? [...running][0] : undefined;
}

/** Return what the work returns; meanwhile calls without an asynchronous context belong to its example, if no other runs. */
export async function whileRunning<Result>(calls: ExampleCalls, work: () => Promise<Result>): Promise<Result> {
  const place = { ...currentPlace(), calls };
  running.add(place);
  try {
    return await inPlace(place, work);
  } finally {
    running.delete(place);
    calls.end();
  }
}

/** The calls of the example that runs here; undefined outside of one. */
export function currentCalls(): ExampleCalls | undefined {
  return currentPlace()?.calls ?? onlyPlace()?.calls;
}

/** Begin a call of the example that runs here; undefined outside of one. */
export function beginCall(host: string, method: string, path: string): Call | undefined {
  const { within } = currentPlace() ?? {};
  if (within !== undefined) within.wasSeen = true;
  return currentCalls()?.begin(host, method, path, within !== undefined);
}
