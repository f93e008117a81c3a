/** Dispatch JSON-RPC messages of any transport to the methods of one program. */

import type { Cancellation } from "../base/cancellation.js";
import { canonicalJson, parseJson } from "../base/json.js";
import type { Log } from "../base/notices.js";
import type { RpcError } from "../base/rpc-error.js";
import { digestText } from "../base/text-digest.js";
import { checkParams, invalidParams, type WireTypeName } from "../base/validate.js";
import { isObject } from "../base/values.js";
import { Runner } from "../evaluate/runner.js";
import { RETRY_AFTER_S, Slots } from "../evaluate/slots.js";
import { METHODS, type MethodTypes, PROTOCOL_VERSION } from "../generated/contract.js";
import { LimitExceeded, MethodNotFound, Overloaded, VersionNotSupported } from "../generated/errors.js";
import { OPENRPC } from "../generated/openrpc.js";
import type { DiscoverResult, Meta } from "../generated/types.js";
import { checkProgram, seedOf } from "../program/check-program.js";
import type { Program } from "../program/program.js";
import { Rows } from "../rows/rows.js";
import { discoveryOf } from "./discovery.js";
import { answerText, errorText, invalid, readEnvelope } from "./envelope.js";
import { type Answer, answerOf, asRpcError, type Job } from "./jobs.js";
import { type Jobs, jobsOf } from "./methods.js";
import type { Settings } from "./options.js";
import type { Transport } from "./store.js";

const LONGEST_ECHO = 100;
const DRAIN_POLL_MS = 20;

type ParamsOf<Name extends keyof MethodTypes> = MethodTypes[Name]["params"];

/** The methods of the server itself, which answer at once. */
type Own = { [Name in keyof MethodTypes]?: (params: ParamsOf<Name>) => unknown };

/** A response; `body` is null if there is nothing to send. */
export interface Reply {
  body: string | null;
  /** False if the message was not JSON-RPC at all. */
  understood: boolean;
}

export class Dispatcher {
  draining = false;
  #active = 0;
  readonly #own: Own = {
    discover: () => this.discovery,
    "rpc.discover": () => OPENRPC,
    list_examples: ({ split, offset = 0, limit = 100 }) => this.rows.list(split, offset, limit),
    get_traces: ({ refs }) => ({ traces: this.transport.traces.traces(refs) }),
    cancel: ({ call_id }) => this.transport.calls?.cancel(call_id),
  };

  private constructor(
    readonly discovery: DiscoverResult,
    private readonly jobs: Jobs,
    private readonly rows: Rows,
    private readonly transport: Transport,
    private readonly log: Log,
  ) {}

  /** Prepare a program for requests. Throws `ProgramFailed` if its seed candidate cannot be made. */
  static async create(program: Program, settings: Settings, transport: Transport): Promise<Dispatcher> {
    checkProgram(program);
    const seedCandidate = await seedOf(program);
    const rows = await Rows.create(program.datasets ?? {}, program.rowSchema, settings.shareRows);
    const discovery = await discoveryOf(program, seedCandidate, rows, settings, transport);
    const slots = new Slots(settings.concurrency, settings.maxQueue);
    const runner = new Runner(program, slots, { ...settings, enforcesDeadlines: !transport.peerEnforcesDeadlines });
    const instanceId = discovery.server.instance_id;
    const { maxResultBytes } = settings;
    const { traces } = transport;
    const jobs = jobsOf({ program, seedCandidate, instanceId, rows, slots, runner, traces, maxResultBytes });
    return new Dispatcher(discovery, jobs, rows, transport, settings.log);
  }

  /** Answer one body. `listener` is cancelled when the caller disconnects. */
  async answerBytes(body: Uint8Array, listener: Cancellation): Promise<Reply> {
    try {
      return await this.#answerMessage(parseJson(body), listener);
    } catch (error) {
      return { body: errorText(null, asRpcError(error, this.log)), understood: false };
    }
  }

  /** Accept no new work; resolves when none is running and every answer with a `call_id` was collected. */
  async drain(): Promise<void> {
    this.draining = true;
    while (this.#active > 0 || this.transport.calls?.outstanding) {
      await new Promise((resolve) => setTimeout(resolve, DRAIN_POLL_MS));
    }
  }

  async #answerMessage(message: unknown, listener: Cancellation): Promise<Reply> {
    if (!Array.isArray(message)) return { body: await this.#answerOne(message, listener), understood: true };
    const allowed = this.discovery.limits.max_batch_entries ?? 0;
    if (!this.#offers("batch")) throw invalid("arrays of requests are not accepted here");
    if (message.length === 0) return refusal(invalid("an array of requests must not be empty"));
    if (message.length > allowed) {
      const details = { limit: "max_batch_entries", allowed, given: message.length };
      return refusal(new LimitExceeded(undefined, details));
    }
    const answers = await Promise.all(
      message.map((entry) =>
        this.#answerOne(entry, listener).catch((error: unknown) => errorText(null, asRpcError(error, this.log))),
      ),
    );
    const responses = answers.filter((answer) => answer !== null);
    return { body: responses.length === 0 ? null : `[${responses.join(",")}]`, understood: true };
  }

  /** Return the text of the response, null for a notification. Throws `InvalidRequest` if there is no envelope. */
  async #answerOne(message: unknown, listener: Cancellation): Promise<string | null> {
    const { method, params, id } = readEnvelope(message);
    const answer = await this.#answer(method, params, listener).catch((error: unknown): Answer => {
      return { error: JSON.stringify(asRpcError(error, this.log).toWire()) };
    });
    return id === undefined ? null : answerText(id, answer);
  }

  async #answer(name: string, params: unknown, listener: Cancellation): Promise<Answer> {
    checkVersion(params);
    const row = Object.hasOwn(METHODS, name) ? METHODS[name as keyof typeof METHODS] : undefined;
    if (row === undefined || (row.capability !== null && !this.#offers(row.capability))) {
      throw new MethodNotFound(undefined, { method: name.slice(0, LONGEST_ECHO).toWellFormed() });
    }
    if (!isObject(params))
      throw invalidParams({ path: "", message: "params must be an object: they are given by name" });
    checkParams(row.params as WireTypeName, params);
    if (this.#offers("async")) checkWaitsForACall(params);
    const own = this.#own[name as keyof Own] as ((params: unknown) => unknown) | undefined;
    if (own !== undefined) return answerOf(() => own(params), this.log);
    const { calls } = this.transport;
    if (name !== "get_result" || calls === undefined) return this.#work(name, params, listener);
    const { call_id, wait_s = 0, partial = false } = params as unknown as ParamsOf<"get_result">;
    return calls.get(call_id, wait_s, partial, listener);
  }

  /** Run a method of the program: once for each `call_id`, without one until the caller disconnects. */
  async #work(method: string, params: Record<string, unknown>, listener: Cancellation): Promise<Answer> {
    const { _meta, ...asked } = params as { _meta?: Meta | null };
    const { calls } = this.transport;
    const callId = _meta?.call_id;
    const waitS = this.#offers("async") ? (_meta?.wait_s ?? undefined) : undefined;
    const start = (): Job => this.#counted(this.#prepare(method, params));
    if (typeof callId !== "string" || calls === undefined) {
      const job = start();
      return answerOf(() => job.run(listener), this.log);
    }
    const request = digestText(canonicalJson([method, asked]));
    return calls.ask(callId, request, start, { waitS, listener, log: this.log });
  }

  #prepare(method: string, params: object): Job {
    if (this.draining) throw new Overloaded("Overloaded: shutting down", { retry_after_s: RETRY_AFTER_S });
    const sized = params as { batch?: unknown[]; eval_batch?: { batch: unknown[] } };
    const given = (sized.batch ?? sized.eval_batch?.batch)?.length ?? 0;
    const allowed = this.discovery.limits.max_batch_size;
    if (given > allowed) throw new LimitExceeded(undefined, { limit: "max_batch_size", allowed, given });
    const job = this.jobs[method as keyof Jobs] as ((params: object) => Job) | undefined;
    if (job === undefined) throw new MethodNotFound(undefined, { method });
    return job(params);
  }

  /** Return the same job, counted among those that a drain waits for. */
  #counted(job: Job): Job {
    const run = async (cancellation: Cancellation): Promise<unknown> => {
      this.#active++;
      try {
        return await job.run(cancellation);
      } finally {
        this.#active--;
      }
    };
    return { ...job, run };
  }

  #offers(capability: string): boolean {
    return this.discovery.capabilities?.includes(capability) ?? false;
  }
}

function refusal(error: RpcError): Reply {
  return { body: errorText(null, error), understood: true };
}

/** Checked before method and fields: a newer version may have some that this one does not know. */
function checkVersion(params: unknown): void {
  const requested = isObject(params) && isObject(params._meta) ? params._meta.protocol_version : undefined;
  if (typeof requested !== "string" || requested === PROTOCOL_VERSION) return;
  throw new VersionNotSupported(undefined, {
    supported: [PROTOCOL_VERSION],
    requested: requested.slice(0, LONGEST_ECHO).toWellFormed(),
  });
}

function checkWaitsForACall(params: Record<string, unknown>): void {
  const { _meta } = params as { _meta?: Meta | null };
  if (typeof _meta?.wait_s !== "number" || typeof _meta.call_id === "string") return;
  throw invalidParams({ path: "_meta.wait_s", message: "needs a `_meta.call_id` to collect the answer with" });
}
