/** Record the steps of one attempt at an example, and return them as the contract has them. */

import { describeFailure } from "../base/failure.js";
import { type JsonValue, wellFormed } from "../base/json.js";
import { jsonOrRepr } from "../base/json-or-repr.js";
import type { Notices } from "../base/notices.js";
import { joined } from "../base/usage.js";
import { faults } from "../base/validate.js";
import { isObject } from "../base/values.js";
import type { Step, Usage } from "../generated/types.js";
import type { Candidate, RunStep, StepHandle } from "../program/program.js";
import { currentPlace, inPlace } from "../wire/place.js";
import { activeContext, spanContextOf } from "./opentelemetry.js";
import { type Span, spanKind, stepOfSpan } from "./span-values.js";
import { checkComponent, PARSE_FAILURE, ParseFailure, type ReadLabel, readLabel, unrecordedStep } from "./steps.js";

declare module "../wire/place.js" {
  interface Place {
    /** What records the steps of the example, if its trajectory is wanted. */
    recorder?: TrajectoryRecorder | undefined;
    /** The step of the program's own that runs. */
    around?: ProgramStep;
  }
}

/** Steps within one another; a step within the deepest is recorded beside it. */
const DEEPEST = 50;

const OF_COMPONENT = "a step is of component";
const UNFINISHED = { type: "unfinished", message: "the step did not end before its example" };

/** Records the steps of one attempt at an example, of which a trajectory is wanted: those of the program's own, and those of spans. */
export class TrajectoryRecorder {
  readonly #steps: StepNode[] = [];
  /** By the ids of their spans. */
  readonly #spanSteps = new Map<string, SpanStep>();
  #recorded: Step[] | undefined;

  constructor(
    private readonly candidate: Candidate,
    readonly notices: Notices,
  ) {}

  readonly step: RunStep = (label, inputs, fn) => {
    const { component, name, title } = readLabel(label);
    if (this.ended) {
      this.#reportLate(title);
      return unrecordedStep(label, inputs, fn);
    }
    if (component !== undefined) checkComponent(component, this.candidate, OF_COMPONENT, this.notices);
    const recorded = new ProgramStep({ component, name, title }, inputs);
    this.#add(recorded, this.#spanSteps.get(spanContextOf(activeContext())?.spanId ?? ""));
    const end = <Value>(value: Value): Value => {
      recorded.end(value);
      return value;
    };
    const fail = (error: unknown): never => {
      recorded.fail(error);
      throw error;
    };
    try {
      const result = inPlace({ recorder: this, around: recorded, within: undefined }, () => fn(recorded));
      return (isThenable(result) ? Promise.resolve(result).then(end, fail) : end(result)) as never;
    } catch (error) {
      return fail(error);
    }
  };

  get ended(): boolean {
    return this.#recorded !== undefined;
  }

  /** Record a span that starts, and return whether it is: what it holds is read when the example's program has returned. */
  addSpan(span: Span, parentId: string | undefined): boolean {
    const step = new SpanStep(span);
    if (this.ended) {
      if (spanKind(span.attributes)) this.#reportLate(step.title);
      return false;
    }
    this.#add(step, parentId === undefined ? undefined : this.#spanSteps.get(parentId));
    this.#spanSteps.set(span.spanContext().spanId, step);
    return true;
  }

  /** Add a step within the innermost of two: `around`, and the program's own that runs here. */
  #add(node: StepNode, around: StepNode | undefined): void {
    const place = currentPlace();
    const own = place?.recorder === this && !place.around?.ended ? place.around : undefined;
    let within = around !== undefined && around.depth >= (own?.depth ?? 0) ? around : own;
    if (within?.depth === DEEPEST) within = within.around;
    node.around = within;
    (within?.steps ?? this.#steps).push(node);
  }

  /** Report a step that starts after its example has ended. */
  #reportLate(title: string): void {
    this.notices.once(`the step ${title} was started after its example had ended; it is not recorded`);
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
        this.notices.once(`the step ${title} had not ended when \`run\` returned; await it there`);
      }
      const steps = this.#ended(node.steps, [...around, ending], isWhole);
      if (steps.length > 0) ending.steps = steps;
      return [ending];
    });
  }
}

function isThenable(value: unknown): value is PromiseLike<unknown> {
  const holder = value as { then?: unknown } | null | undefined;
  return typeof value === "object" && typeof holder?.then === "function";
}

/** Parse failures that a step has recorded: the steps around it get an ordinary error. */
const recordedFailures = new WeakSet<ParseFailure>();

/** A step before its example has ended. */
abstract class StepNode {
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

/** A step that the program runs itself. */
class ProgramStep extends StepNode implements StepHandle {
  usage: Usage = {};
  readonly #started = performance.now();
  readonly #inputs: JsonValue;
  #outputs: JsonValue | undefined;
  #failure: Pick<Step, "error" | "raw" | "expected"> = {};
  #seconds: number | undefined;

  /** The inputs are copied, as the program may change them later. */
  constructor(
    private readonly label: ReadLabel,
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
    const { component, name } = this.label;
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
    return this.label.title;
  }

  #readUsage(notices: Notices): Usage | undefined {
    const usage = jsonOrRepr(this.usage);
    if (isObject(usage) && Object.keys(usage).length === 0) return undefined;
    const [fault] = faults("Usage", usage);
    if (fault === undefined) return usage as Usage;
    notices.once(
      `the usage of the step ${this.title} is left out: ${[fault.path, fault.message].filter(Boolean).join(": ")}`,
    );
    return undefined;
  }

  #elapsed(): number {
    return (performance.now() - this.#started) / 1000;
  }
}

function textOf(value: unknown): string {
  return typeof value === "string" ? wellFormed(value) : JSON.stringify(jsonOrRepr(value));
}

/** A step whose values are those of a span. */
class SpanStep extends StepNode {
  /** Whether a step around it has taken its usage. */
  #isCounted = false;

  constructor(private readonly span: Span) {
    super();
  }

  get ended(): boolean {
    return this.span.ended;
  }

  get title(): string {
    return `of the span ${JSON.stringify(this.span.name)}`;
  }

  toStep(candidate: Candidate, around: readonly Step[], notices: Notices): Step | undefined {
    const found = stepOfSpan(this.span, candidate);
    if (found === undefined) return undefined;
    const step = jsonOrRepr(found.values) as Step;
    const { component } = step;
    if (component) checkComponent(component, candidate, OF_COMPONENT, notices);
    else if (found.kind === "model" && !around.some((each) => each.component)) {
      const { messages } = step.inputs as { messages?: unknown };
      notices.once(ofNoComponent(this.span.name, messages !== undefined));
    }
    const same = around.findLast((each) => component && each.component === component);
    if (same === undefined) return step;
    if (this.#isWithinCounted()) delete step.usage; // it is a part of that
    this.#isCounted = Boolean(step.usage);
    take(same, step);
    return undefined;
  }

  #isWithinCounted(): boolean {
    for (let node = this.around; node !== undefined; node = node.around) {
      if (node instanceof SpanStep && node.#isCounted) return true;
    }
    return false;
  }
}

/** The steps that have taken outputs, or usage, from steps within them. */
const takenOutputs = new WeakSet<Step>();
const takenUsage = new WeakSet<Step>();

/** Give a step the inputs, outputs and usage that it does not have from one within it that stands for the same. */
function take(step: Step, inner: Step): void {
  if (Object.keys(step.inputs ?? {}).length === 0) step.inputs = inner.inputs;
  if ((takenOutputs.has(step) || (step.outputs ?? null) === null) && (inner.outputs ?? null) !== null) {
    step.outputs = inner.outputs;
    takenOutputs.add(step); // until the last of several
  }
  if ((takenUsage.has(step) || !step.usage) && inner.usage) {
    step.usage = joined(step.usage ?? undefined, inner.usage);
    takenUsage.add(step);
  }
}

function ofNoComponent(name: string, hasMessages: boolean): string {
  const remedy = hasMessages
    ? "if it uses one, have its text in the system message as it is"
    : "it has no messages: make the instrumentation record them";
  return `the span ${JSON.stringify(name)} of a model call is of no component; ${remedy}, or set the attribute \`evolverpc.component\``;
}
