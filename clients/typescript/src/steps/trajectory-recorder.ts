/** Record the steps of one attempt at an example, and return them as the contract has them. */

import type { Notices } from "../base/notices.js";
import type { Step } from "../generated/types.js";
import type { Candidate, RunStep } from "../program/program.js";
import { currentPlace, inPlace } from "../wire/place.js";
import { activeContext, spanContextOf } from "./opentelemetry.js";
import type { Span } from "./span-attributes.js";
import { SpanStep } from "./span-steps.js";
import { spanKind } from "./span-values.js";
import { checkComponent, ProgramStep, type StepNode } from "./step-node.js";
import { checkLabel, partsOf, titleOf, unrecordedStep } from "./steps.js";

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
    checkLabel(label);
    if (this.ended) {
      this.#reportLate(titleOf(label));
      return unrecordedStep(label, inputs, fn);
    }
    const { component } = partsOf(label);
    if (component !== undefined) checkComponent(component, this.candidate, this.notices);
    const recorded = new ProgramStep(label, inputs);
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
