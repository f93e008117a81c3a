/** Steps of an example's run, as programs write them: which component did what, what went into it and what came out. */

import type { Notices } from "../base/notices.js";
import { isObject, shown } from "../base/values.js";
import type { Candidate, RunStep } from "../program/program.js";
import { currentPlace } from "../wire/place.js";

/** The type of an error for a model's answer without the expected structure. */
export const PARSE_FAILURE = "parse_failure";

/** A model's answer does not have the expected structure. Thrown in a step, it becomes the step's parse failure. */
export class ParseFailure extends Error {
  /** `raw`: the answer. `expected`: the structure that it should have, as text for the reflection model. */
  constructor(
    readonly raw: string,
    readonly expected: string,
    message = "the answer could not be parsed",
  ) {
    super(message);
    this.name = "ParseFailure";
  }
}

/** Throw a `ParseFailure`. */
export function parseFailure(raw: string, expected: string, message?: string): never {
  throw new ParseFailure(raw, expected, message);
}

/** Run a step of the example that runs now; outside of an example, and if no trajectory is wanted, only run `fn`. */
export const step: RunStep = (label, inputs, fn) => {
  return (currentPlace()?.recorder?.step ?? unrecordedStep)(label, inputs, fn);
};

/** Run `fn` without recording it. */
export const unrecordedStep: RunStep = (label, _inputs, fn) => {
  readLabel(label);
  return fn({ usage: {}, outputs: undefined }) as never;
};

/** Report a component that the candidate does not have; `where`: what names it. */
export function checkComponent(component: string, candidate: Candidate, where: string, notices: Notices): void {
  if (Object.hasOwn(candidate, component)) return;
  const known = Object.keys(candidate).sort().join(", ");
  notices.once(`${where} ${JSON.stringify(component)}: the candidate has no such component, it has ${known}`);
}

/** The parts of a label, and a title for messages. */
export interface ReadLabel {
  component: string | undefined;
  name: string | undefined;
  title: string;
}

/** Read a label. Throws `TypeError` for what is none. */
export function readLabel(label: unknown): ReadLabel {
  const parts = typeof label === "string" ? { component: label } : label;
  const { component = null, name = null } = isObject(parts) ? parts : {};
  const title = component ?? name;
  const areTexts = [component, name].every((part) => typeof part === "string" || part === null);
  if (areTexts && (title || typeof label === "string")) {
    return { component: component ?? undefined, name: name ?? undefined, title: JSON.stringify(title) } as ReadLabel;
  }
  throw new TypeError(
    `a step is of a component, such as step("planner", inputs, fn), or has a name, such as step({ name: "search" }, ` +
      `inputs, fn); it got ${shown(label)}`,
  );
}
