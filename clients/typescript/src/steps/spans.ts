/** See the spans that instrumentations of models, tools and agents make while an example runs. */

import type { Notices } from "../base/notices.js";
import { currentPlace, inPlace, onlyPlace, type Place } from "../wire/place.js";
import {
  activeContext,
  findApis,
  globalProvider,
  minimalProvider,
  type SpanContext,
  spanContextOf,
  useWithoutSetUp,
} from "./opentelemetry.js";
import { type Span, spanKind } from "./span-values.js";
import type { TrajectoryRecorder } from "./trajectory.js";

/** What of a span processor is used here. */
interface SpanProcessor {
  onStart(span: StartedSpan, context: unknown): void;
}

/** A span of the SDK: version 2 has the whole context of its parent, version 1 the id. */
type StartedSpan = Span & { parentSpanContext?: SpanContext; parentSpanId?: string };

/** What records the steps of the programs that run and whose trajectory is wanted; also of those that do not stop. */
const recorders = new Set<TrajectoryRecorder>();
/** The searches before and after the first example whose trajectory is wanted: each takes a while. */
const searches = new Map<"before" | "after", Promise<string | undefined>>();
const watched = new WeakSet<SpanProcessor>();
const minimal = minimalProvider(() => currentPlace()?.recorder !== undefined || openRecorder() !== undefined, addSpan);

/** Run the program on an example. A span without an asynchronous context belongs to the only example that runs. */
export async function runExample<Output>(
  recorder: TrajectoryRecorder | undefined,
  onUsage: Place["onUsage"],
  program: () => Output | Promise<Output>,
): Promise<Output> {
  if (recorder === undefined) return inPlace({ recorder, onUsage }, program);
  await watchSpans(recorder.notices, "before");
  recorders.add(recorder);
  try {
    return await inPlace({ recorder, onUsage }, program);
  } finally {
    recorders.delete(recorder);
    if (await watchSpans(recorder.notices, "after")) {
      recorder.notices.once(
        "OpenTelemetry was loaded or set up while an example ran: spans are steps of the next examples, and may be missing " +
          "in this one; do it before the program is served",
      );
    }
  }
}

/** Record a span that is made here as a step of the example that runs, and return whether it is. */
export function recordSpan(span: Span): boolean {
  return addSpan(span, spanContextOf(activeContext())?.spanId);
}

/**
 * See the spans of the program's tracer provider, or of a minimal one if its instrumentations have none.
 *
 * Return whether there are some that were not seen before.
 */
async function watchSpans(notices: Notices, when: "before" | "after"): Promise<boolean> {
  const provider = globalProvider();
  if (provider === undefined) {
    const search = searches.get(when) ?? findApis();
    searches.set(when, search);
    const notFound = await search;
    if (notFound !== undefined) {
      notices.once(
        `spans do not become steps: OpenTelemetry's API is loaded from ${notFound}; set a tracer provider before the ` +
          "program is served",
      );
    }
    return useWithoutSetUp(minimal);
  }
  const { _activeSpanProcessor, activeSpanProcessor = _activeSpanProcessor } = provider as {
    _activeSpanProcessor?: SpanProcessor; // of version 2 of the SDK
    activeSpanProcessor?: SpanProcessor;
  };
  if (activeSpanProcessor !== undefined) return watch(activeSpanProcessor);
  if (provider !== minimal && provider.constructor.name !== "NoopTracerProvider") {
    const name = provider.constructor.name;
    notices.once(`spans do not become steps: the tracer provider, a ${name}, is not one of OpenTelemetry's SDK`);
  }
  return false;
}

function watch(processor: SpanProcessor): boolean {
  if (watched.has(processor)) return false;
  watched.add(processor);
  const others = processor.onStart.bind(processor);
  processor.onStart = (span, context) => {
    addSpan(span, span.parentSpanContext?.spanId ?? span.parentSpanId);
    others(span, context);
  };
  return true;
}

/** Record a span that starts as a step of the example that it belongs to, and return whether it is recorded. */
function addSpan(span: Span, parentId: string | undefined): boolean {
  const recorder = currentPlace()?.recorder ?? soleRecorder(span);
  return recorder?.addSpan(span, parentId) ?? false;
}

function openRecorder(): TrajectoryRecorder | undefined {
  return [...recorders].find(({ ended }) => !ended);
}

/** What records the only example that runs; undefined if there are several. */
function soleRecorder(span: Span): TrajectoryRecorder | undefined {
  const open = openRecorder();
  if (onlyPlace() !== undefined) return open;
  if (open !== undefined && spanKind(span.attributes)) {
    open.notices.once(
      `the span ${JSON.stringify(span.name)} is not recorded: it has no asynchronous context, and several examples ` +
        "run; await the call in `run`, or set `concurrency` to 1",
    );
  }
  return undefined;
}
