/** A minimal set-up of OpenTelemetry, for programs whose instrumentations have none: spans are recorded and not exported. */

import { asyncStorage } from "../base/runtime.js";
import { MinimalSpan } from "./minimal-span.js";
import {
  activeContext,
  type Context,
  type ContextManager,
  globalProvider,
  type SpanContext,
  spanContextOf,
  type Tracer,
  type TracerProvider,
  withActiveSpan,
} from "./opentelemetry.js";
import type { Span } from "./span-attributes.js";

interface SpanOptions {
  attributes?: Record<string, unknown>;
  root?: boolean;
}

/** Return a context manager that follows asynchronous calls. */
export function asyncContextManager(root: Context): ContextManager {
  const contexts = asyncStorage<Context>();
  const manager: ContextManager = {
    active: () => contexts?.getStore() ?? root,
    with: (context, fn, self, ...given) => {
      const call = () => fn.apply(self, given);
      return contexts === undefined ? call() : contexts.run(context, call);
    },
    bind: <Target>(context: Context, target: Target) => {
      if (typeof target !== "function") return target;
      return ((...given: unknown[]) => manager.with(context, () => target(...given))) as Target;
    },
    enable: () => manager,
    disable: () => manager,
  };
  return manager;
}

/** Who records the spans. */
export interface SpanRecorder {
  /** Whether any span may be recorded now. */
  isWanted(): boolean;
  /** Take a span, with the ids of the one around it; return whether it is recorded. */
  onStart(span: Span, parent: SpanContext | undefined): boolean;
}

/** Makes spans until the program sets a tracer provider of its own, which then makes them. */
export class MinimalProvider implements TracerProvider {
  constructor(private readonly recorder: SpanRecorder) {}

  getTracer(name: string, version?: string, options?: object): Tracer {
    const delegate = (): Tracer | undefined => {
      const provider = globalProvider();
      return provider === undefined || provider === this ? undefined : provider.getTracer(name, version, options);
    };
    return new MinimalTracer(name, this.recorder, delegate);
  }
}

class MinimalTracer implements Tracer {
  constructor(
    private readonly scope: string,
    private readonly recorder: SpanRecorder,
    private readonly delegate: () => Tracer | undefined,
  ) {}

  startSpan(name: string, options: SpanOptions = {}, context = activeContext()): unknown {
    return this.delegate()?.startSpan(name, options, context) ?? this.#start(name, options, context);
  }

  startActiveSpan(...given: unknown[]): unknown {
    const delegate = this.delegate();
    if (delegate !== undefined) return delegate.startActiveSpan(...given);
    const fn = given.at(-1) as (span: unknown) => unknown;
    if (!this.recorder.isWanted()) return fn(UNRECORDED);
    const [name, options = {}, context = activeContext()] = given.slice(0, -1) as [string, SpanOptions?, Context?];
    return withActiveSpan(this.#start(name, options, context), context, fn);
  }

  #start(name: string, { attributes, root = false }: SpanOptions, context: Context | undefined): MinimalSpan {
    if (!this.recorder.isWanted()) return UNRECORDED;
    const parent = root ? undefined : spanContextOf(context);
    const span = new MinimalSpan(name, { ...attributes }, { name: this.scope }, parent?.traceId);
    span.recorded = this.recorder.onStart(span, parent);
    return span;
  }
}

/** Stands for each span while nothing is recorded. */
const UNRECORDED = new MinimalSpan("unrecorded", {}, { name: "evolverpc" });
