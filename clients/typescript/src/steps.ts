/** Steps of an example's run: which component did what, what went into it and what came out. */

import { nearest } from "./edit-distance.js";
import { describeFailure } from "./failure.js";
import type { Step, Usage } from "./generated/types.js";
import { type JsonValue, wellFormed } from "./json.js";
import { jsonOrRepr } from "./json-or-repr.js";
import type { Notices } from "./notices.js";
import type { Candidate } from "./program.js";
import { asyncStorage } from "./runtime.js";
import { faults } from "./validate.js";
import { isObject, shown } from "./values.js";

/** The type of an error for a model's answer without the expected structure. */
export const PARSE_FAILURE = "parse_failure";

/** Steps within one another; a step within the deepest is recorded beside it. */
const DEEPEST = 50;

const UNFINISHED = { type: "unfinished", message: "the step did not end before its example" };

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

/** The example in whose asynchronous context the caller runs. */
interface Place {
  /** What records its steps, if its trajectory is wanted. */
  recorder: StepRecorder | undefined;
  /** The step of the program's own that runs. */
  around: RecordedStep | undefined;
  /** Receives what calls of models cost. */
  onUsage: OnUsage | undefined;
  /** Whether a call of a model runs that is recorded: those that it makes are parts of it. */
  inModelCall?: boolean;
}

export type OnUsage = (usage: Usage) => void;

const places = asyncStorage<Place>();

/** What records the steps of the example in whose asynchronous context the caller runs; undefined if nothing does. */
export function currentRecorder(): StepRecorder | undefined {
  return places?.getStore()?.recorder;
}

/** What receives the usage of the example in whose asynchronous context the caller runs. */
export function usageReceiver(): OnUsage | undefined {
  return places?.getStore()?.onUsage;
}

/** Whether the caller runs within `inModelCall`. */
export function isInModelCall(): boolean {
  return places?.getStore()?.inModelCall ?? false;
}

/** Run what makes a recorded call of a model. `counts`: whether its usage is counted there, and not by calls within. */
export function inModelCall<Result>(counts: boolean, make: () => Result): Result {
  const place = places?.getStore();
  if (places === undefined || place === undefined) return make();
  return places.run({ ...place, ...(counts ? { onUsage: undefined } : {}), inModelCall: true }, make);
}

/** Run a program on an example, whose calls of `step` are recorded by `recorder`. */
export function runIn<Result>(
  recorder: StepRecorder | undefined,
  onUsage: OnUsage | undefined,
  program: () => Result,
): Result {
  if (places === undefined || (recorder ?? onUsage) === undefined) return program();
  return places.run({ recorder, around: undefined, onUsage }, program);
}

/** Parse failures that a step has recorded: the steps around it get an ordinary error. */
const recordedFailures = new WeakSet<ParseFailure>();

/** Run a step of the example that runs now; outside of an example, and if no trajectory is wanted, only run `fn`. */
export const step: RunStep = (label, inputs, fn) => {
  const place = places?.getStore();
  return (place?.recorder?.step ?? unrecordedStep)(label, inputs, fn);
};

/** Run `fn` without recording it. */
export const unrecordedStep: RunStep = (label, _inputs, fn) => {
  checkLabel(label);
  return fn({ usage: {}, outputs: undefined }) as never;
};

/** A step before its example has ended. */
export abstract class StepNode {
  readonly steps: StepNode[] = [];
  around: StepNode | undefined;

  abstract readonly ended: boolean;
  /** A short name for messages. */
  abstract readonly title: string;

  /**
   * The step as the contract has it, without those within it; undefined for what is none: those within take its place.
   *
   * `around`: the steps around it, the innermost last.
   */
  abstract toStep(candidate: Candidate, around: readonly Step[], notices: Notices): Step | undefined;

  /** How many steps are around this one, with it. */
  get depth(): number {
    return 1 + (this.around?.depth ?? 0);
  }
}

class RecordedStep extends StepNode implements StepHandle {
  usage: Usage = {};
  readonly #started = performance.now();
  readonly #inputs: JsonValue;
  #outputs: JsonValue | undefined;
  #failure: Pick<Step, "error" | "raw" | "expected"> = {};
  #seconds: number | undefined;

  /** The inputs are copied, as the program may change them later. */
  constructor(
    private readonly label: StepLabel,
    inputs: object,
  ) {
    super();
    this.#inputs = jsonOrRepr(inputs);
  }

  get outputs(): unknown {
    return this.#outputs;
  }

  set outputs(value: unknown) {
    this.#outputs = jsonOrRepr(value);
  }

  get ended(): boolean {
    return this.#seconds !== undefined;
  }

  end(result: unknown): void {
    this.#seconds = this.#elapsed();
    if (this.#outputs === undefined) this.outputs = result;
  }

  fail(error: unknown): void {
    this.#seconds = this.#elapsed();
    const { type, message } = describeFailure(error);
    this.#failure = { error: { type, message } };
    if (!(error instanceof ParseFailure) || recordedFailures.has(error)) return;
    recordedFailures.add(error);
    this.#failure = {
      error: { type: PARSE_FAILURE, message },
      raw: textOf(error.raw),
      expected: textOf(error.expected),
    };
  }

  toStep(_candidate: Candidate, _around: readonly Step[], notices: Notices): Step {
    const { component, name } = partsOf(this.label);
    const usage = this.#readUsage(notices);
    return {
      ...(component === undefined ? {} : { component: wellFormed(component) }),
      ...(name === undefined ? {} : { name: wellFormed(name) }),
      inputs: this.#inputs,
      outputs: this.#outputs ?? null,
      ...this.#failure,
      ...(usage === undefined ? {} : { usage }),
      seconds: this.#seconds ?? this.#elapsed(),
    };
  }

  get title(): string {
    return titleOf(this.label);
  }

  #readUsage(notices: Notices): Usage | undefined {
    const usage = jsonOrRepr(this.usage);
    if (isObject(usage) && Object.keys(usage).length === 0) return undefined;
    const [fault] = faults("Usage", usage);
    if (fault === undefined) return usage as Usage;
    notices.once(`usage ${this.title}`, () => {
      return `the usage of the step ${this.title} is left out: ${[fault.path, fault.message].filter(Boolean).join(": ")}`;
    });
    return undefined;
  }

  #elapsed(): number {
    return (performance.now() - this.#started) / 1000;
  }
}

/** Records the steps of one attempt at an example, of which a trajectory is wanted. */
export class StepRecorder {
  readonly #steps: StepNode[] = [];
  #recorded: Step[] | undefined;

  constructor(
    private readonly candidate: Candidate,
    readonly notices: Notices,
  ) {}

  readonly step: RunStep = (label, inputs, fn) => {
    checkLabel(label);
    if (this.ended) {
      this.reportLate(titleOf(label));
      return unrecordedStep(label, inputs, fn);
    }
    const { component } = partsOf(label);
    if (component !== undefined) checkComponent(component, this.candidate, this.notices);
    const recorded = new RecordedStep(label, inputs);
    this.add(recorded, this.surrounding());
    try {
      const place = { recorder: this, around: recorded, onUsage: places?.getStore()?.onUsage };
      const result = places === undefined ? fn(recorded) : places.run(place, () => fn(recorded));
      if (!isThenable(result)) {
        recorded.end(result);
        return result as never;
      }
      return Promise.resolve(result).then(
        (value) => {
          recorded.end(value);
          return value;
        },
        (error: unknown) => {
          recorded.fail(error);
          throw error;
        },
      ) as never;
    } catch (error) {
      recorded.fail(error);
      throw error;
    }
  };

  get ended(): boolean {
    return this.#recorded !== undefined;
  }

  /** The step in which the caller runs, if that is not one of the program's own. */
  protected surrounding(): StepNode | undefined {
    return undefined;
  }

  /** Add a step within the innermost of two: `around`, and the program's own that runs here. */
  add(node: StepNode, around: StepNode | undefined): void {
    const place = places?.getStore();
    const own = place?.recorder === this && !place.around?.ended ? place.around : undefined;
    let within = around !== undefined && around.depth >= (own?.depth ?? 0) ? around : own;
    if (within?.depth === DEEPEST) within = within.around;
    node.around = within;
    (within?.steps ?? this.#steps).push(node);
  }

  /** Report a step that starts after its example has ended. */
  reportLate(title: string): void {
    this.notices.once(`late ${title}`, () => {
      return `the step ${title} was started after its example had ended; it is not recorded`;
    });
  }

  /** Record nothing from now on, and return the steps. `isWhole`: the program ended by itself, and without a failure. */
  end(isWhole: boolean): Step[] {
    this.#recorded ??= this.#ended(this.#steps, [], isWhole);
    return this.#recorded;
  }

  #ended(nodes: readonly StepNode[], around: readonly Step[], isWhole: boolean): Step[] {
    return nodes.flatMap((node) => {
      const { ended, title } = node;
      const ending = node.toStep(this.candidate, around, this.notices);
      if (ending === undefined) return this.#ended(node.steps, around, isWhole);
      if (!ended) ending.error ??= UNFINISHED;
      if (!ended && isWhole) {
        this.notices.once(`unfinished ${title}`, () => {
          return `the step ${title} had not ended when \`run\` returned; await it there`;
        });
      }
      const steps = this.#ended(node.steps, [...around, ending], isWhole);
      if (steps.length > 0) ending.steps = steps;
      return [ending];
    });
  }
}

/** Report a step of a component that does not exist. */
export function checkComponent(component: string, candidate: Candidate, notices: Notices): void {
  if (Object.hasOwn(candidate, component)) return;
  notices.once(`component ${component}`, () => {
    return `a step is of component ${JSON.stringify(component)}: ${unknownComponent(component, Object.keys(candidate))}`;
  });
}

/** State that a candidate lacks a component, which ones it has, and which of them may be meant. */
export function unknownComponent(component: string, components: readonly string[]): string {
  const near = nearest(component, components);
  const meant = near === undefined ? "" : `; did you mean ${JSON.stringify(near)}?`;
  return `the candidate has no such component, it has ${[...components].sort().join(", ")}${meant}`;
}

/** Return all steps of a trajectory, each before those within it; none if it holds no steps. */
export function stepsOf(trajectory: unknown): Step[] {
  return isObject(trajectory) ? flattened(trajectory.steps) : [];
}

function flattened(steps: unknown): Step[] {
  if (!Array.isArray(steps)) return [];
  // A trajectory of a program's own may hold anything.
  return steps.filter(isObject).flatMap((found) => [found as Step, ...flattened(found.steps)]);
}

/** Throws `TypeError` for what is no label. */
function checkLabel(label: unknown): asserts label is StepLabel {
  if (typeof label === "string") return;
  const isText = (part: unknown): boolean => typeof part === "string" || part === undefined || part === null;
  if (isObject(label) && isText(label.component) && isText(label.name) && (label.component ?? label.name)) return;
  throw new TypeError(
    `a step is of a component, such as step("planner", inputs, fn), or has a name, such as step({ name: "search" }, ` +
      `inputs, fn); it got ${shown(label)}`,
  );
}

function partsOf(label: StepLabel): { component: string | undefined; name: string | undefined } {
  if (typeof label === "string") return { component: label, name: undefined };
  return { component: label.component ?? undefined, name: label.name ?? undefined };
}

function titleOf(label: StepLabel): string {
  const { component, name } = partsOf(label);
  return JSON.stringify(component ?? name);
}

function textOf(value: unknown): string {
  return typeof value === "string" ? wellFormed(value) : JSON.stringify(jsonOrRepr(value));
}

function isThenable(value: unknown): value is PromiseLike<unknown> {
  const holder = value as { then?: unknown } | null | undefined;
  return typeof value === "object" && typeof holder?.then === "function";
}
