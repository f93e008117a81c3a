/** A span as OpenTelemetry's API has it, which is recorded and not exported. */

import type { SpanContext } from "./opentelemetry.js";
import type { Span } from "./span-attributes.js";

const SAMPLED = 1;

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

/** Return hexadecimal digits that differ each time, also if the program replaces `Math.random`. */
function newId(digits: number): string {
  return crypto.randomUUID().replaceAll("-", "").slice(0, digits);
}
