/** OpenTelemetry's API as the program has loaded it; nothing of it is imported. */

import { loadedScripts } from "../base/runtime.js";

const REGISTRY = Symbol.for("opentelemetry.js.api.1");
const SPAN = Symbol.for("OpenTelemetry Context Key SPAN");
/** Until 1.9, and since 1.10. */
const API = /[\\/]@opentelemetry[\\/]api[\\/](build[\\/]src[\\/]index\.js|dist[\\/]index\.[cm]js)$/;
const ANY = /[\\/]@opentelemetry[\\/]api[\\/]/;

/** A context: immutable values by key. */
export interface Context {
  getValue(key: symbol): unknown;
  setValue(key: symbol, value: unknown): Context;
  deleteValue(key: symbol): Context;
}

/** The ids of a span. */
export interface SpanContext {
  traceId: string;
  spanId: string;
  traceFlags: number;
}

export interface ContextManager {
  active(): Context;
  with<Arguments extends unknown[], Result>(
    context: Context,
    fn: (...given: Arguments) => Result,
    self?: unknown,
    ...given: Arguments
  ): Result;
  bind<Target>(context: Context, target: Target): Target;
  enable(): ContextManager;
  disable(): ContextManager;
}

/** A tracer provider of any kind, or the API's own, which delegates to the one that is set. */
export interface TracerProvider {
  getTracer(name: string, version?: string, options?: object): Tracer;
  getDelegate?(): TracerProvider;
  setDelegate?(provider: TracerProvider): void;
}

export interface Tracer {
  startSpan(name: string, options?: object, context?: Context): unknown;
  startActiveSpan(...given: unknown[]): unknown;
}

interface Api {
  ROOT_CONTEXT: Context;
  trace?: { getTracerProvider(): TracerProvider };
  context?: { setGlobalContextManager(manager: ContextManager): boolean };
}

/** The copies that are loaded, as far as they were looked for. */
const apis = new Set<Api>();

interface Registry {
  trace?: TracerProvider;
  context?: ContextManager;
}

/** The tracer provider that the program has set for the whole process. */
export function globalProvider(): TracerProvider | undefined {
  const { trace } = registry();
  return trace?.getDelegate?.() ?? trace;
}

/** The context in which the caller runs, if a context manager is set. */
export function activeContext(): Context | undefined {
  return registry().context?.active();
}

/** The ids of the span of a context. */
export function spanContextOf(context: Context | undefined): SpanContext | undefined {
  const span = context?.getValue(SPAN) as { spanContext(): SpanContext } | undefined;
  return span?.spanContext();
}

/** Call `fn` with a span, which is the active one until it returns if a context manager is set. */
export function withActiveSpan(span: unknown, context: Context | undefined, fn: (span: unknown) => unknown): unknown {
  const manager = registry().context;
  if (manager === undefined || context === undefined) return fn(span);
  return manager.with(context.setValue(SPAN, span), fn, undefined, span);
}

/** Find the copies of the API that are loaded. Return where it is loaded from and why none can be found, if one is. */
export async function findApis(): Promise<string | undefined> {
  const urls = loadedScripts().filter((url) => ANY.test(url));
  let problem = "is not a build of it that is known here";
  for (const url of urls.filter((each) => API.test(each))) {
    try {
      apis.add(await import(/* webpackIgnore: true */ /* @vite-ignore */ url));
    } catch (error) {
      problem = `cannot be imported again (${String(error)})`; // its files were moved or deleted since
    }
  }
  return urls[0] === undefined || apis.size > 0 ? undefined : `${urls[0]}, which ${problem}`;
}

/**
 * Make all tracers use a provider until the program sets one, and make a context manager if none is set.
 *
 * The provider is not registered: only one can be, and that is the program's. Return whether any tracer has changed.
 */
export function useWithoutSetUp(provider: TracerProvider, managerOf: (root: Context) => ContextManager): boolean {
  let hasChanged = false;
  for (const api of apis) {
    const proxy = api.trace?.getTracerProvider(); // undefined of a module that is still loading
    if (proxy?.setDelegate === undefined || proxy.getDelegate?.() === provider) continue;
    proxy.setDelegate(provider);
    if (registry().context === undefined) api.context?.setGlobalContextManager(managerOf(api.ROOT_CONTEXT));
    hasChanged = true;
  }
  return hasChanged;
}

function registry(): Registry {
  return (globalThis as { [REGISTRY]?: Registry })[REGISTRY] ?? {};
}
