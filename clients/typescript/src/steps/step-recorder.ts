/** Record the steps of one attempt at an example, and return them as the contract has them. */

import { describeFailure } from "../base/failure.js";
import { type JsonValue, wellFormed } from "../base/json.js";
import { jsonOrRepr } from "../base/json-or-repr.js";
import type { Notices } from "../base/notices.js";
import { faults } from "../base/validate.js";
import { isObject } from "../base/values.js";
import type { Step, Usage } from "../generated/types.js";
import type { Candidate } from "../program/program.js";
import type { RunStep, StepHandle, StepLabel } from "../program/run-step.js";
import { currentPlace, inPlace } from "./step-context.js";
import {
  checkLabel,
  PARSE_FAILURE,
  ParseFailure,
  partsOf,
  titleOf,
  unknownComponent,
  unrecordedStep,
} from "./steps.js";

/** Steps within one another; a step within the deepest is recorded beside it. */
const DEEPEST = 50;

const UNFINISHED = { type: "unfinished", message: "the step did not end before its example" };

/** Parse failures that a step has recorded: the steps around it get an ordinary error. */
const recordedFailures = new WeakSet<ParseFailure>();

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

export class RecordedStep extends StepNode implements StepHandle {
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
      const { onUsage, calls } = currentPlace() ?? {};
      const result = inPlace({ recorder: this, around: recorded, onUsage, calls }, () => fn(recorded));
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
    const place = currentPlace();
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

function textOf(value: unknown): string {
  return typeof value === "string" ? wellFormed(value) : JSON.stringify(jsonOrRepr(value));
}

function isThenable(value: unknown): value is PromiseLike<unknown> {
  const holder = value as { then?: unknown } | null | undefined;
  return typeof value === "object" && typeof holder?.then === "function";
}
