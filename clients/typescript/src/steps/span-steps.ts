/** Steps whose values are those of spans. */

import { jsonOrRepr } from "../base/json-or-repr.js";
import type { Notices } from "../base/notices.js";
import { joined } from "../base/usage.js";
import type { Step } from "../generated/types.js";
import type { Candidate } from "../program/program.js";
import type { Span } from "./span-attributes.js";
import { stepOfSpan } from "./span-values.js";
import { checkComponent, StepNode } from "./step-node.js";

/** A step whose values are those of a span. */
export class SpanStep extends StepNode {
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
    if (component) checkComponent(component, candidate, notices);
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
