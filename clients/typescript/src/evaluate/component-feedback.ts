/** Feedback on single components, as `score` gives it beside that on the whole example. */

import { finite, InvalidResult } from "../base/invalid-result.js";
import { wellFormed } from "../base/json.js";
import type { Notices } from "../base/notices.js";
import { isObject, shown } from "../base/values.js";
import type { ExampleResult } from "../generated/types.js";
import type { Candidate } from "../program/program.js";
import { unknownComponent } from "../steps/steps.js";

/** Return the texts by component, each given as text or as `{feedback, score?}`; throws `InvalidResult` for all else. */
export function readComponentFeedback(given: unknown): Record<string, string> {
  if (!isObject(given)) throw new InvalidResult(`component_feedback must be an object, not ${shown(given)}`);
  const texts = Object.entries(given).map(([name, feedback]) => {
    if (typeof feedback === "string") return [wellFormed(name), wellFormed(feedback)];
    const { feedback: text, score: own, ...others } = isObject(feedback) ? feedback : {};
    if (typeof text !== "string" || Object.keys(others).length > 0) {
      throw new InvalidResult(
        `component_feedback.${name} must be a text or {feedback, score?}, not ${shown(feedback)}; its feedback is a text`,
      );
    }
    if (own !== undefined && own !== null) finite(own, `component_feedback.${name}.score`);
    return [wellFormed(name), wellFormed(text)];
  });
  return Object.fromEntries(texts);
}

/** Report feedback on a component that does not exist. */
export function reportComponentFeedback(
  { component_feedback: feedback }: ExampleResult,
  candidate: Candidate,
  notices: Notices,
): void {
  for (const name of Object.keys(feedback ?? {})) {
    if (Object.hasOwn(candidate, name)) continue;
    notices.once(`component_feedback names ${JSON.stringify(name)}: ${unknownComponent(Object.keys(candidate))}`);
  }
}
