/** Steps from spans: what instrumentations of models, tools and agents record while an example runs. */

import type { Step } from "./generated/types.js";
import { jsonOrRepr } from "./json-or-repr.js";
import { contextManager, MinimalProvider } from "./minimal-tracing.js";
import type { Notices } from "./notices.js";
import { activeContext, globalProvider, type SpanContext, spanContextOf, useWithoutSetUp } from "./opentelemetry.js";
import type { Candidate } from "./program.js";
import { type Span, spanKind, stepOfSpan } from "./span-values.js";
import { checkComponent, currentRecorder, type OnUsage, runIn, StepNode, StepRecorder } from "./steps.js";
import { joined } from "./usage.js";

/** What of a span processor is used here. */
interface SpanProcessor {
  onStart(span: StartedSpan, context: unknown): void;
  onEnding?(span: unknown): void;
  onEnd(span: unknown): void;
  _spanProcessors?: SpanProcessor[];
}

/** A span of the SDK: version 2 has the whole context of its parent, version 1 the id. */
type StartedSpan = Span & { parentSpanContext?: SpanContext; parentSpanId?: string };

/** The examples that run; each with what records its steps if its trajectory is wanted. */
const openExamples = new Set<{ readonly recorder: StepRecorder | undefined }>();
const spansOf = new WeakMap<StepRecorder, ExampleSpans>();

/** The spans of an example: the steps by the spans' ids, and what records the calls of models, by component and messages. */
interface ExampleSpans {
  steps: Map<string, SpanStep>;
  scopes: Map<string, string>;
}
const watched = new WeakSet<SpanProcessor>();
const minimal = new MinimalProvider({
  isWanted: () => currentRecorder() !== undefined || runningExamples().some(({ recorder }) => recorder !== undefined),
  onStart: (span, parent) => addSpan(span, parent?.spanId),
});

/** Return what records the steps of an example: those of the program's own, and those of spans. */
export function spanRecorder(candidate: Candidate, notices: Notices): StepRecorder {
  watchSpans(notices);
  const spans: ExampleSpans = { steps: new Map(), scopes: new Map() };
  const { steps } = spans;
  const surrounding = () => (steps.size === 0 ? undefined : steps.get(spanContextOf(activeContext())?.spanId ?? ""));
  const recorder = new StepRecorder(candidate, notices, surrounding);
  spansOf.set(recorder, spans);
  return recorder;
}

/** Run the program on an example. A span without an asynchronous context belongs to the only example that runs. */
export async function runExample<Output>(
  recorder: StepRecorder | undefined,
  onUsage: OnUsage | undefined,
  program: () => Output | Promise<Output>,
): Promise<Output> {
  const example = { recorder };
  openExamples.add(example);
  try {
    return await runIn(recorder, onUsage, program);
  } finally {
    openExamples.delete(example);
    if (recorder !== undefined && watchSpans(recorder.notices)) {
      recorder.notices.once("set up late", () => {
        return (
          "OpenTelemetry was loaded or set up while an example ran: spans are steps of the next examples, and may be missing " +
          "in this one; do it before the program is served"
        );
      });
    }
  }
}

/** Record a span that is made here as a step of the example that runs, and return whether it is. */
export function recordSpan(span: Span): boolean {
  return addSpan(span, spanContextOf(activeContext())?.spanId);
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

/**
 * See the spans of the program's tracer provider, or of a minimal one if its instrumentations have none.
 *
 * Return whether there are some that were not seen before.
 */
function watchSpans(notices: Notices): boolean {
  const provider = globalProvider();
  if (provider === undefined) return useWithoutSetUp(minimal, contextManager);
  const { _activeSpanProcessor, activeSpanProcessor = _activeSpanProcessor } = provider as {
    _activeSpanProcessor?: SpanProcessor; // of version 2 of the SDK
    activeSpanProcessor?: SpanProcessor;
  };
  if (activeSpanProcessor !== undefined) return watch(activeSpanProcessor, notices);
  if (provider !== minimal && provider.constructor.name !== "NoopTracerProvider") {
    const name = provider.constructor.name;
    notices.once(`provider ${name}`, () => {
      return `spans do not become steps: the tracer provider, a ${name}, is not one of OpenTelemetry's SDK`;
    });
  }
  return false;
}

function watch(processor: SpanProcessor, notices: Notices): boolean {
  if (watched.has(processor)) return false;
  watched.add(processor);
  for (const each of [...(processor._spanProcessors ?? []), processor]) guard(each, notices);
  const others = processor.onStart.bind(processor);
  processor.onStart = (span, context) => {
    addSpan(span, span.parentSpanContext?.spanId ?? span.parentSpanId);
    others(span, context);
  };
  return true;
}

/** Report what a span processor of the program throws, which would else be thrown by the code that is traced. */
function guard(processor: SpanProcessor, notices: Notices): void {
  for (const name of ["onStart", "onEnding", "onEnd"] as const) {
    const call = processor[name] as ((...given: unknown[]) => void) | undefined;
    if (call === undefined) continue;
    processor[name] = (...given: unknown[]) => {
      try {
        call.apply(processor, given);
      } catch (error) {
        notices.once(`processor ${String(error)}`, () => `a span processor of the program threw ${String(error)}`);
      }
    };
  }
}

/** Record a span that starts, and return whether it is: what it holds is read when the example's program has returned. */
function addSpan(span: Span, parentId: string | undefined): boolean {
  const recorder = currentRecorder() ?? soleRecorder(span);
  if (recorder === undefined) return false;
  if (recorder.ended) {
    if (spanKind(span.attributes)) recorder.reportLate(`of the span ${JSON.stringify(span.name)}`);
    return false;
  }
  const { steps, scopes } = spansOf.get(recorder) as ExampleSpans;
  const step = new SpanStep(span, scopes);
  recorder.add(step, parentId === undefined ? undefined : steps.get(parentId));
  steps.set(span.spanContext().spanId, step);
  return true;
}

/** The examples that run, without those that have timed out and do not stop. */
function runningExamples(): { readonly recorder: StepRecorder | undefined }[] {
  return [...openExamples].filter(({ recorder }) => recorder === undefined || !recorder.ended);
}

/** What records the only example that runs; undefined if there are several. */
function soleRecorder(span: Span): StepRecorder | undefined {
  const open = runningExamples();
  if (open.length === 1) return open[0]?.recorder;
  const traced = open.find(({ recorder }) => recorder)?.recorder;
  if (traced !== undefined && spanKind(span.attributes)) {
    traced.notices.once(`stray ${span.name}`, () => {
      return (
        `the span ${JSON.stringify(span.name)} is not recorded: it has no asynchronous context, and several examples ` +
        "run; await the call in `run`, or set `maxConcurrency` to 1"
      );
    });
  }
  return undefined;
}
