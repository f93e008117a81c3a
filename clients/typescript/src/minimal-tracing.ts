/** A minimal set-up of OpenTelemetry, for programs whose instrumentations have none: spans are recorded and not exported. */

import {
  activeContext,
  type Context,
  type ContextManager,
  globalProvider,
  type SpanContext,
  spanContextOf,
  type Tracer,
  type TracerProvider,
  withSpan,
} from "./opentelemetry.js";
import { asyncStorage } from "./runtime.js";
import type { Span } from "./span-values.js";

const SAMPLED = 1;

interface SpanOptions {
  attributes?: Record<string, unknown>;
  root?: boolean;
}

class Values implements Context {
  constructor(private readonly values: ReadonlyMap<symbol, unknown> = new Map()) {}

  getValue(key: symbol): unknown {
    return this.values.get(key);
  }

  setValue(key: symbol, value: unknown): Context {
    return new Values(new Map(this.values).set(key, value));
  }

  deleteValue(key: symbol): Context {
    return new Values(new Map([...this.values].filter(([each]) => each !== key)));
  }
}

const contexts = asyncStorage<Context>();
const ROOT = new Values();

/** Follows asynchronous calls. */
export const contextManager: ContextManager = {
  active: () => contexts?.getStore() ?? ROOT,
  with: (context, fn, self, ...given) => {
    const call = () => fn.apply(self, given);
    return contexts === undefined ? call() : contexts.run(context, call);
  },
  bind: <Target>(context: Context, target: Target) => {
    if (typeof target !== "function") return target;
    return ((...given: unknown[]) => contextManager.with(context, () => target(...given))) as Target;
  },
  enable: () => contextManager,
  disable: () => contextManager,
};

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
    const later = (): Tracer | undefined => {
      const provider = globalProvider();
      return provider === undefined || provider === this ? undefined : provider.getTracer(name, version, options);
    };
    return new MinimalTracer(name, this.recorder, later);
  }
}

class MinimalTracer implements Tracer {
  constructor(
    private readonly scope: string,
    private readonly recorder: SpanRecorder,
    private readonly later: () => Tracer | undefined,
  ) {}

  startSpan(name: string, options: SpanOptions = {}, context = activeContext()): unknown {
    return this.later()?.startSpan(name, options, context) ?? this.#start(name, options, context);
  }

  startActiveSpan(...given: unknown[]): unknown {
    const later = this.later();
    if (later !== undefined) return later.startActiveSpan(...given);
    const fn = given.at(-1) as (span: unknown) => unknown;
    if (!this.recorder.isWanted()) return fn(UNRECORDED);
    const [name, options = {}, context = activeContext()] = given.slice(0, -1) as [string, SpanOptions?, Context?];
    const span = this.#start(name, options, context);
    return contextManager.with(withSpan(context ?? ROOT, span), fn, undefined, span);
  }

  #start(name: string, { attributes, root = false }: SpanOptions, context: Context | undefined): MinimalSpan {
    if (!this.recorder.isWanted()) return UNRECORDED;
    const parent = root ? undefined : spanContextOf(context);
    const span = new MinimalSpan(name, { ...attributes }, { name: this.scope }, parent?.traceId);
    span.recorded = this.recorder.onStart(span, parent);
    return span;
  }
}

/** A span as the API has it. */
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
    readonly instrumentationScope: { name: string },
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
const UNRECORDED = new MinimalSpan("unrecorded", {}, { name: "evolverpc" });

/** Return hexadecimal digits that differ each time, also if the program replaces `Math.random`. */
function newId(digits: number): string {
  return crypto.randomUUID().replaceAll("-", "").slice(0, digits);
}
