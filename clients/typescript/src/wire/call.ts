/** A call of an example to a host: its request, and how it ended. */

import { AnswerReader, type Header } from "./answer-reader.js";
import { type Failure, isClientsTimeout, reasonOf } from "./failures.js";
import { isModelPath, isModelRequest } from "./model-requests.js";

/** Bytes of a request that are kept until its answer: they identify it, and show whether it is one of a model. */
const MAX_KEPT = 1024 * 1024;

const utf8 = new TextDecoder();

/** Failed calls by the errors that their transports threw. */
const byError = new WeakMap<object, Call>();

/** `running`, `succeeded`, or `failed` transiently; `neither` was refused, or cancelled by the program. */
export type Outcome = "running" | "succeeded" | "failed" | "neither";

/** A call of a model as its client knows it. */
export interface ModelCallInWork {
  /** Whether a part of it was seen on the network, where its outcome is known better. */
  wasSeen: boolean;
}

/** What a call needs to know of its example. */
export interface CallOwner {
  /** `host` or `host:port`, of hosts at which every call is one of a model. */
  readonly modelHosts: ReadonlySet<string>;
  ended(call: Call): void;
}

export class Call {
  outcome: Outcome = "running";
  failure: Failure | undefined;
  /** The code of the transport's error. */
  code: string | undefined;
  /** The message of the transport's error. */
  message: string | undefined;
  /** Whether its client ended it before its answer had, and the error that the client gave. */
  wasStopped = false;
  stoppedBy: unknown;
  /** Whether another call of the example ran meanwhile. */
  isParallel = false;
  /** When it began and ended, in the order of the example's events. */
  began = 0;
  endedAt = 0;
  #answer: AnswerReader | undefined;
  #sent: (string | Uint8Array)[] = [];
  #sentBytes = 0;
  #key: string | undefined;

  /**
   * `host`: with the port, unless it is the scheme's own. `within`: whether it is a part of a known call of a model.
   * `known`: if it is such a call itself.
   */
  constructor(
    private readonly owner: CallOwner,
    readonly host: string,
    private readonly method: string,
    private readonly path: string,
    private readonly within: boolean,
    readonly known?: ModelCallInWork,
  ) {}

  get hasEnded(): boolean {
    return this.outcome !== "running";
  }

  /** Whether its answer is a stream that the host sends by itself. */
  get isSubscription(): boolean {
    return this.method === "GET" && this.#answer?.isStream === true;
  }

  /** A part of the body; what is neither text nor bytes is none. */
  sent(part: unknown): void {
    if (typeof part !== "string" && !(part instanceof Uint8Array)) return;
    this.#sentBytes += part.length;
    if (this.#sentBytes - part.length <= MAX_KEPT) this.#sent.push(part);
  }

  answered(status: number, header: Header): void {
    if (status < 200 && status !== 101) return;
    this.#answer = new AnswerReader(status, header);
    this.look();
  }

  received(part: Uint8Array | string): void {
    if (!this.hasEnded) this.#answer?.part(part);
  }

  /** Fail if what has arrived states a failure: the program may act on that before the rest arrives. */
  look(): void {
    const failure = this.#answer?.failure(false);
    if (failure !== undefined) this.fail(failure);
  }

  completed(trailers?: Header): void {
    if (this.hasEnded) return;
    const failure = this.#answer?.failure(true, trailers);
    const status = this.#answer?.status ?? 200;
    const isUnfinished = this.#answer?.isUnfinished === true && !this.isSubscription;
    if (failure !== undefined) this.fail(failure);
    else if (isUnfinished && this.isOfModel()) this.fail({ reason: "the stream ended before its last event" });
    else this.#end(status < 400 ? "succeeded" : "neither");
  }

  /** The transport failed, or its client stopped before the end, because of `error`. */
  broke(error?: unknown): void {
    if (this.hasEnded) return;
    const reason = reasonOf(error) ?? (isClientsTimeout(error) ? "timed out" : undefined);
    const failure = this.#answer?.failure(false) ?? (reason === undefined ? undefined : { reason });
    this.wasStopped = failure === undefined;
    this.stoppedBy = error;
    if (failure !== undefined) this.fail(failure, error);
    else this.#end(this.#answer !== undefined && this.#answer.status < 400 ? "succeeded" : "neither");
  }

  /** It failed transiently. `error`: what the transport threw. */
  fail(failure: Failure, error?: unknown): void {
    if (this.hasEnded) return;
    this.failure = failure;
    const { code, message } = Object(error) as { code?: unknown; message?: unknown };
    if (typeof code === "string") this.code = code;
    if (typeof message === "string") this.message = message;
    if (typeof error === "object" && error !== null) byError.set(error, this);
    this.#end("failed");
  }

  /** Whether it is the same request as another. */
  isSameAs(other: Call): boolean {
    return this.host === other.host && this.#identity() === other.#identity();
  }

  /** Why it failed, and where. */
  toString(): string {
    return `${this.failure?.reason} from ${this.host}`;
  }

  #end(outcome: Outcome): void {
    if (this.hasEnded) return;
    this.outcome = outcome;
    this.owner.ended(this);
    this.#answer = undefined;
    if (outcome === "failed") this.#identity();
    this.#sent = [];
  }

  /** Whether it is one of a model; to be asked when it ends, while its request is known. */
  isOfModel(): boolean {
    const { modelHosts } = this.owner;
    if (this.within || modelHosts.has(this.host) || modelHosts.has(this.host.replace(/:\d+$/, ""))) return true;
    const path = this.path.split("?")[0] ?? "";
    if (this.method !== "POST" || !isModelPath(path)) return false;
    return isModelRequest(path, this.#body(), this.#sentBytes > MAX_KEPT);
  }

  #body(): string {
    return this.#sent.map((part) => (typeof part === "string" ? part : utf8.decode(part))).join("");
  }

  #identity(): string {
    this.#key ??= `${this.method} ${this.path} ${this.#sentBytes} ${this.#body()}`;
    return this.#key;
  }
}

/** The call that failed with an error. */
export function callOf(error: object): Call | undefined {
  return byError.get(error);
}
