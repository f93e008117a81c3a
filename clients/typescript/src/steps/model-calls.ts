/** Calls of models that are recorded where no instrumentation records spans: as steps, and as usage of the example. */

import { jsonOrRepr } from "../base/json-or-repr.js";
import type { ModelUsage } from "../generated/types.js";
import type { Call, ModelCallInWork } from "../wire/example-calls.js";
import { failureIn } from "../wire/infrastructure-failures.js";
import { currentCalls, currentPlace, inPlace, type Place } from "../wire/place.js";
import { MinimalSpan } from "./opentelemetry.js";
import { spanUsage, TOKENS } from "./span-values.js";
import { recordSpan } from "./spans.js";

/** The models whose calls are recorded here, by `modelKey`. */
export const tracedModels = new Set<string>();

export function modelKey({ provider, modelId }: { provider?: string; modelId: string }): string {
  return `${provider} ${modelId}`;
}

/** What goes into a call. */
export interface Asked {
  model: string;
  messages: unknown;
  /** Instructions apart from the messages. */
  system?: unknown;
}

/** What came out of a call; `usage`: undefined if it is unknown. */
export interface Answered {
  messages: unknown[];
  usage: ModelUsage | undefined;
}

/** A call of a model that has started. End it once, by `end` or `fail`. */
export class ModelCall {
  readonly #span: MinimalSpan;
  readonly #onUsage: Place["onUsage"];
  /** Shared by the calls of one within another, such as that of `tracedFetch` in one of `traced`. */
  readonly #inWork: ModelCallInWork = currentPlace()?.within ?? { wasSeen: false };
  /** The same call for the verdict on the example, unless parts of it are seen on the network. */
  readonly watched: Call | undefined;

  /** `counts`: whether the call counts as usage of the example. */
  constructor(
    { model, messages, system }: Asked,
    private readonly counts = true,
  ) {
    this.#onUsage = counts ? currentPlace()?.onUsage : undefined;
    const attributes = { "gen_ai.operation.name": "chat", "gen_ai.request.model": model };
    this.#span = new MinimalSpan(`chat ${model}`, attributes);
    this.watched = currentCalls()?.beginModel(model, this.#inWork);
    if (currentPlace()?.within !== undefined || !recordSpan(this.#span)) return;
    this.#span.recorded = true;
    this.#span.setAttributes({
      "gen_ai.input.messages": jsonOrRepr(messages), // the program may change them later
      ...(system === undefined ? {} : { "gen_ai.system_instructions": jsonOrRepr(system) }),
    });
  }

  /** Run what makes the call: calls that are recorded there are this one. If it throws, the call has failed. */
  async run<Result>(make: () => PromiseLike<Result>): Promise<Result> {
    try {
      return await this.around(make);
    } catch (error) {
      this.fail(error);
      throw error;
    }
  }

  /** Run what makes the call, and leave its end to others: calls that it makes are parts of it. */
  around<Result>(make: () => Result): Result {
    return inPlace({ within: this.#inWork, ...(this.counts && { onUsage: undefined }) }, make);
  }

  end({ messages, usage = {} }: Answered): void {
    this.watched?.completed();
    if (this.#span.ended) return;
    const counts = Object.entries(usage).map(([name, count]) => [TOKENS[name as keyof typeof TOKENS][0], count]);
    Object.assign(this.#span.attributes, Object.fromEntries(counts));
    this.#span.setAttributes({ "gen_ai.output.messages": jsonOrRepr(messages) }).end();
    this.#onUsage?.(spanUsage(this.#span.attributes));
  }

  fail(error: unknown): void {
    const failure = failureIn(error);
    if (failure === undefined) this.watched?.broke(error);
    else this.watched?.fail(failure, error);
    if (this.#span.ended) return;
    const { name, message } = error instanceof Error ? error : new Error(String(error));
    this.#span.recordException({ name, message });
    this.#span.end();
  }
}
