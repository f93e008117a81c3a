/** The calls of one example over the network: which failed, and which of these are open. */

import { isObject, jsonIn } from "../base/values.js";
import type { ExampleResult } from "../generated/types.js";
import { WIRE } from "../generated/wire.js";
import { AnswerReader, type Header } from "./answer-reader.js";
import { type Failure, isClientsTimeout, reasonOf } from "./failures.js";

/** Failed calls of an example that are remembered. */
const MAX_FAILED = 256;

type Hosts = NonNullable<ExampleResult["hosts"]>;

/**
 * A failed call is open until the same request succeeds, or a call to its host that began afterwards does. Of calls that ran
 * at the same time as others only the same request counts: they are of branches that know nothing of one another.
 */
export class ExampleCalls {
  readonly began = performance.now();
  readonly #running = new Set<Call>();
  readonly #failed: Call[] = [];
  readonly #open = new Set<Call>();
  readonly #stopped: Call[] = [];
  readonly #hosts: Hosts = {};
  /** Failed calls of models, without those that another one followed, except repetitions that were cancelled. */
  #models: Call[] = [];
  #clock = 0;
  #isOver = false;

  /** `modelHosts`: `host` or `host:port`, of hosts at which every call is one of a model. */
  constructor(readonly modelHosts: ReadonlySet<string> = new Set()) {}

  /** How long ago the attempt began. */
  get seconds(): number {
    return (performance.now() - this.began) / 1000;
  }

  /** A call begins; `within`: as a part of a known call of a model. */
  begin(host: string, method: string, path: string, within = false): Call {
    if (this.#running.size > 0) this.#lookAtRunning();
    const call = new Call(this, host, method, path, within);
    call.began = ++this.#clock;
    for (const other of this.#running) {
      if (other.isSubscription) continue;
      other.isParallel = true;
      call.isParallel = true;
    }
    this.#running.add(call);
    return call;
  }

  /** A call of a model, known by its client alone; it counts for nothing if a part of it is seen on the network. */
  beginModel(model: string, known: ModelCallInWork): Call {
    const call = new Call(this, `model ${model}`, "", "", true, known);
    call.began = ++this.#clock;
    return call;
  }

  ended(call: Call): void {
    if (this.#isOver || call.known?.wasSeen) return;
    if (call.wasStopped) this.#stopped.push(call);
    this.#running.delete(call);
    call.endedAt = ++this.#clock;
    this.#count(call);
    const isFailed = call.outcome === "failed";
    if ((isFailed || this.#models.length > 0) && call.isOfModel()) {
      const isCancelled = call.wasStopped && call.outcome === "neither";
      this.#models = this.#models.filter((failed) => {
        return failed.endedAt > call.began || (isCancelled && failed.isSameAs(call));
      });
      if (isFailed) this.#models.push(call);
    }
    if (isFailed) {
      this.#open.add(call);
      if (this.#failed.push(call) > MAX_FAILED) this.#failed.shift();
    } else if (call.outcome === "succeeded") {
      for (const failed of this.#open) {
        if (failed.host !== call.host) continue;
        if (failed.isSameAs(call) || (!failed.isParallel && call.began > failed.endedAt)) this.#open.delete(failed);
      }
    }
  }

  /** The open call among the last ones of a model: the last that began, and those that ran at the same time. */
  get openModelCall(): Call | undefined {
    if (this.#running.size > 0) this.#lookAtRunning();
    return this.#models.findLast((call) => this.#open.has(call));
  }

  isOpen(call: Call): boolean {
    return this.#open.has(call);
  }

  /** Whether a client stopped a call, for another reason than `error`. */
  wasStoppedBefore(error: object): boolean {
    return this.#stopped.some((call) => call.stoppedBy !== error);
  }

  /** An open call for which `test` holds; `handled` if such calls failed but none is open; undefined if none failed. */
  find(test: (call: Call) => boolean): Call | "handled" | undefined {
    const found = this.#failed.filter(test);
    return found.findLast((call) => this.#open.has(call)) ?? (found.length > 0 ? "handled" : undefined);
  }

  /** Nothing is added from now on. */
  end(): void {
    this.#lookAtRunning();
    this.#isOver = true;
  }

  /** The outcomes by host, for the result; undefined if there were none. */
  get hosts(): Hosts | undefined {
    return Object.keys(this.#hosts).length > 0 ? this.#hosts : undefined;
  }

  #lookAtRunning(): void {
    for (const call of this.#running) call.look();
  }

  #count(call: Call): void {
    const { outcome, failure } = call;
    if (call.known !== undefined || outcome === "neither") return;
    const counts = this.#hosts[call.host] ?? { succeeded: 0, failed: 0 };
    this.#hosts[call.host] = counts;
    if (failure === undefined) {
      counts.succeeded = (counts.succeeded ?? 0) + 1;
      return;
    }
    counts.failed = (counts.failed ?? 0) + 1;
    counts.reason = failure.reason.replace(/^HTTP /, "");
    delete counts.retry_after_s;
    if (failure.retryAfterS !== undefined) counts.retry_after_s = failure.retryAfterS;
  }
}

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

/** A call of an example to a host: its request, and how it ended. */
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
    private readonly owner: ExampleCalls,
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

const PATH = RegExp(WIRE.PATH, "i");
const OF_MODELS = RegExp(WIRE.PATH_OF_MODELS, "i");
const NAMED = RegExp(WIRE.MODEL_IN_PATH);

/** Further paths that show it alone, where no connection was made and nothing was sent. */
const UNSENT = /\/v1\/(messages|responses|embeddings|completions)$/;

/** Whether a path may be that of a model's API. */
function isModelPath(pathname: string): boolean {
  return PATH.test(pathname) || OF_MODELS.test(pathname);
}

/** Whether a request with such a path and this body is one of a model; of a body that is `cut`, the rest is unknown. */
export function isModelRequest(pathname: string, body: string, cut = false): boolean {
  const asked = jsonIn(body);
  if (!isObject(asked)) return cut || OF_MODELS.test(pathname) || (body === "" && UNSENT.test(pathname));
  const name = asked.model || asked.model_id || NAMED.test(pathname) || pathname.endsWith(WIRE.WITHOUT_A_NAME);
  return Boolean(name) && WIRE.ASKED.some((each) => each in asked);
}
