/** The calls of one example over the network: which failed, and which of these are open. */

import type { ExampleResult } from "../generated/types.js";
import { Call, type CallOwner, type ModelCallInWork } from "./call.js";

/** Failed calls of an example that are remembered. */
const MAX_FAILED = 256;

type Hosts = NonNullable<ExampleResult["hosts"]>;

/**
 * A failed call is open until the same request succeeds, or a call to its host that began afterwards does. Of calls that ran
 * at the same time as others only the same request counts: they are of branches that know nothing of one another.
 */
export class ExampleCalls implements CallOwner {
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

  constructor(readonly modelHosts: ReadonlySet<string> = new Set()) {}

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
