/** A minimal set-up of OpenTelemetry, for programs whose instrumentations have none: spans are recorded and not exported. */

import { asyncStorage } from "../base/runtime.js";
import { MinimalSpan } from "./minimal-span.js";
import {
  activeContext,
  type Context,
  type ContextManager,
  globalProvider,
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

/**
 * Return a provider that makes spans until the program sets one of its own, which then makes them.
 *
 * `isWanted`: whether any span may be recorded now. `onStart`: takes a span and returns whether it is recorded.
 */
export function minimalProvider(
  isWanted: () => boolean,
  onStart: (span: Span, parentId: string | undefined) => boolean,
): TracerProvider {
  const getTracer: TracerProvider["getTracer"] = (scope, ...details) => {
    const delegate = (): Tracer | undefined => {
      const current = globalProvider();
      return current === provider ? undefined : current?.getTracer(scope, ...details);
    };
    const start = (name: string, { attributes, root = false }: SpanOptions, context?: Context): MinimalSpan => {
      if (!isWanted()) return UNRECORDED;
      const parent = root ? undefined : spanContextOf(context);
      const span = new MinimalSpan(name, { ...attributes }, parent?.traceId);
      span.recorded = onStart(span, parent?.spanId);
      return span;
    };
    return {
      startSpan: (name, options = {}, context = activeContext()) =>
        delegate()?.startSpan(name, options, context) ?? start(name, options, context),
      startActiveSpan: (...given) => {
        const other = delegate();
        if (other !== undefined) return other.startActiveSpan(...given);
        const fn = given.at(-1) as (span: unknown) => unknown;
        if (!isWanted()) return fn(UNRECORDED);
        const [name, options = {}, context = activeContext()] = given.slice(0, -1) as [string, SpanOptions?, Context?];
        return withActiveSpan(start(name, options, context), context, fn);
      },
    };
  };
  const provider: TracerProvider = { getTracer };
  return provider;
}

/** Stands for each span while nothing is recorded. */
const UNRECORDED = new MinimalSpan("unrecorded", {});
