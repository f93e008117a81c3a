/** OpenTelemetry's API as the program has loaded it, of which nothing is imported, and a minimal set-up of it for programs that have none. */

import { asyncStorage, loadedScripts } from "../base/runtime.js";
import type { Span } from "./span-values.js";

const REGISTRY = Symbol.for("opentelemetry.js.api.1");
const SPAN = Symbol.for("OpenTelemetry Context Key SPAN");
/** Until 1.9, and since 1.10. */
const API = /[\\/]@opentelemetry[\\/]api[\\/](build[\\/]src[\\/]index\.js|dist[\\/]index\.[cm]js)$/;
const ANY = /[\\/]@opentelemetry[\\/]api[\\/]/;

/** A context: immutable values by key. */
interface Context {
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

interface ContextManager {
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
interface TracerProvider {
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
function withActiveSpan(span: unknown, context: Context | undefined, fn: (span: unknown) => unknown): unknown {
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
export function useWithoutSetUp(provider: TracerProvider): boolean {
  let hasChanged = false;
  for (const api of apis) {
    const proxy = api.trace?.getTracerProvider(); // undefined of a module that is still loading
    if (proxy?.setDelegate === undefined || proxy.getDelegate?.() === provider) continue;
    proxy.setDelegate(provider);
    if (registry().context === undefined) api.context?.setGlobalContextManager(asyncContextManager(api.ROOT_CONTEXT));
    hasChanged = true;
  }
  return hasChanged;
}

function registry(): Registry {
  return (globalThis as { [REGISTRY]?: Registry })[REGISTRY] ?? {};
}

interface SpanOptions {
  attributes?: Record<string, unknown>;
  root?: boolean;
}

/** Return a context manager that follows asynchronous calls. */
function asyncContextManager(root: Context): ContextManager {
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

const SAMPLED = 1;

/** A span as OpenTelemetry's API has it, which is recorded and not exported. */
export class MinimalSpan implements Span {
  /** Whether what is set on it has an effect. */
  recorded = false;
  readonly events: { name: string; attributes?: Record<string, unknown> }[] = [];
  status: Span["status"] = { code: 0 };
  duration: Span["duration"] = [0, 0];
  ended = false;
  readonly #started = performance.now();
  #context: SpanContext | undefined;

  constructor(
    public name: string,
    readonly attributes: Record<string, unknown>,
    private readonly traceId?: string,
  ) {}

  spanContext(): SpanContext {
    this.#context ??= { traceId: this.traceId ?? newId(32), spanId: newId(16), traceFlags: SAMPLED };
    return this.#context;
  }

  isRecording(): boolean {
    return this.recorded && !this.ended;
  }

  setAttribute(key: string, value: unknown): this {
    return this.setAttributes({ [key]: value });
  }

  setAttributes(attributes: Record<string, unknown>): this {
    if (this.isRecording()) Object.assign(this.attributes, attributes);
    return this;
  }

  addEvent(name: string, attributes?: unknown): this {
    const isTime = typeof attributes === "number" || Array.isArray(attributes) || attributes instanceof Date;
    if (this.isRecording())
      this.events.push({ name, ...(isTime ? {} : { attributes: { ...(attributes as object) } }) });
    return this;
  }

  recordException(thrown: string | { name?: string; code?: unknown; message?: string }): void {
    const { name, code, message } = typeof thrown === "string" ? { message: thrown } : thrown;
    const type = code ?? name;
    this.addEvent("exception", {
      ...(type === undefined ? {} : { "exception.type": String(type) }),
      "exception.message": message,
    });
  }

  setStatus(status: Span["status"]): this {
    if (this.isRecording()) this.status = { ...status };
    return this;
  }

  updateName(name: string): this {
    if (this.isRecording()) this.name = name;
    return this;
  }

  addLink(): this {
    return this;
  }

  addLinks(): this {
    return this;
  }

  end(): void {
    if (this.ended) return;
    const milliseconds = performance.now() - this.#started;
    this.duration = [Math.floor(milliseconds / 1000), Math.round((milliseconds % 1000) * 1e6)];
    this.ended = true;
  }
}

/** Stands for each span while nothing is recorded. */
const UNRECORDED = new MinimalSpan("unrecorded", {});

/** Return hexadecimal digits that differ each time, also if the program replaces `Math.random`. */
function newId(digits: number): string {
  return crypto.randomUUID().replaceAll("-", "").slice(0, digits);
}
