/** Which requests are those of a model's API, by their path and their body. */

import { isObject, jsonIn } from "../base/values.js";
import { WIRE } from "../generated/wire.js";

const PATH = RegExp(WIRE.PATH, "i");
const OF_MODELS = RegExp(WIRE.PATH_OF_MODELS, "i");
const NAMED = RegExp(WIRE.MODEL_IN_PATH);

/** Further paths that show it alone, where no connection was made and nothing was sent. */
const UNSENT = /\/v1\/(messages|responses|embeddings|completions)$/;

/** Whether a path may be that of a model's API. */
export function isModelPath(pathname: string): boolean {
  return PATH.test(pathname) || OF_MODELS.test(pathname);
}

/** Whether a request with such a path and this body is one of a model; of a body that is `cut`, the rest is unknown. */
export function isModelRequest(pathname: string, body: string, cut = false): boolean {
  const asked = jsonIn(body);
  if (!isObject(asked)) return cut || OF_MODELS.test(pathname) || (body === "" && UNSENT.test(pathname));
  const name = asked.model || asked.model_id || NAMED.test(pathname) || pathname.endsWith(WIRE.WITHOUT_A_NAME);
  return Boolean(name) && WIRE.ASKED.some((each) => each in asked);
}
