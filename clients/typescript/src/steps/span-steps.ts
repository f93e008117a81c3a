/** Steps whose values are those of spans, and what records them beside the program's own. */

import { jsonOrRepr } from "../base/json-or-repr.js";
import type { Notices } from "../base/notices.js";
import { joined } from "../base/usage.js";
import type { Step } from "../generated/types.js";
import type { Candidate } from "../program/program.js";
import { activeContext, spanContextOf } from "./opentelemetry.js";
import type { Span } from "./span-attributes.js";
import { spanKind, stepOfSpan } from "./span-values.js";
import { checkComponent, StepNode, StepRecorder } from "./step-recorder.js";

/** Records the steps of one attempt at an example: those of the program's own, and those of spans. */
export class SpanStepRecorder extends StepRecorder {
  /** By the ids of their spans. */
  readonly #spanSteps = new Map<string, SpanStep>();
  /** What records the calls of models, by component and messages. */
  readonly #scopes = new Map<string, string>();

  /** Record a span that starts, and return whether it is: what it holds is read when the example's program has returned. */
  addSpan(span: Span, parentId: string | undefined): boolean {
    const step = new SpanStep(span, this.#scopes);
    if (this.ended) {
      if (spanKind(span.attributes)) this.reportLate(step.title);
      return false;
    }
    this.add(step, parentId === undefined ? undefined : this.#spanSteps.get(parentId));
    this.#spanSteps.set(span.spanContext().spanId, step);
    return true;
  }

  protected override surrounding(): StepNode | undefined {
    return this.#spanSteps.size === 0 ? undefined : this.#spanSteps.get(spanContextOf(activeContext())?.spanId ?? "");
  }
}

/** A step whose values are those of a span. */
class SpanStep extends StepNode {
  /** Whether a step around it has taken its usage. */
  #isCounted = false;

  constructor(
    private readonly span: Span,
    private readonly scopes: Map<string, string>,
  ) {
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
      notices.once(`span ${this.span.name}`, () => ofNoComponent(this.span.name, messages !== undefined));
    }
    const same = around.findLast((each) => component && each.component === component);
    if (same === undefined) {
      if (component && found.kind === "model") this.#reportTwice(component, step, notices);
      return step;
    }
    if (this.#isWithinCounted()) delete step.usage; // it is a part of that
    this.#isCounted = Boolean(step.usage);
    take(same, step);
    return undefined;
  }

  /** Report a call that two instrumentations record beside each other. */
  #reportTwice(component: string, { inputs }: Step, notices: Notices): void {
    const { instrumentationScope, instrumentationLibrary = instrumentationScope } = this.span;
    const key = JSON.stringify([component, (inputs as { messages?: unknown }).messages]);
    const scope = instrumentationLibrary?.name ?? "";
    const other = this.scopes.get(key) ?? scope;
    this.scopes.set(key, scope);
    if (other === scope) return;
    const both = [other, scope].sort().join(" and ");
    notices.once(`scopes ${both}`, () => {
      return `${both} record the same calls of models, as two steps each; switch one of them off`;
    });
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
