/** Dispatch JSON-RPC messages of any transport to the methods of one program. */

import type { Cancellation } from "../base/cancellation.js";
import { digestOfJson } from "../base/digest.js";
import { parseJson } from "../base/json.js";
import type { Log } from "../base/notices.js";
import type { Settings } from "../base/options.js";
import type { RpcError } from "../base/rpc-error.js";
import { faults, invalidParams } from "../base/validate.js";
import { isObject } from "../base/values.js";
import { PACKAGE_VERSION } from "../base/version.js";
import { Runner } from "../evaluate/runner.js";
import { METHODS, type MethodTypes, PROTOCOL_VERSION } from "../generated/contract.js";
import { InvalidRequest, LimitExceeded, MethodNotFound, Overloaded, VersionNotSupported } from "../generated/errors.js";
import { OPENRPC } from "../generated/openrpc.js";
import type { DiscoverResult, Meta } from "../generated/types.js";
import {
  type Candidate,
  checkProgram,
  isScoreProgram,
  type Program,
  seedOf,
  takesWholeBatches,
} from "../program/program.js";
import { Rows } from "../rows/rows.js";
import { type Answer, answerOf, asRpcError, type Job } from "./calls.js";
import { type Jobs, jobsOf } from "./methods.js";
import type { MemoryStore } from "./store.js";

const LONGEST_ECHO = 100;
const DRAIN_POLL_MS = 20;
const RETRY_AFTER_S = 1;

type ParamsOf<Name extends keyof MethodTypes> = MethodTypes[Name]["params"];

/** The methods of the server itself, which answer at once. */
type Own = { [Name in keyof MethodTypes]?: (params: ParamsOf<Name>) => unknown };

/** A response; `body` is null if there is nothing to send. */
interface Reply {
  body: string | null;
  /** False if the message was not JSON-RPC at all. */
  understood: boolean;
}

/** The capabilities that a transport adds to a program, and the state behind them. */
export interface Transport extends Partial<MemoryStore> {
  offers: readonly string[];
  traces: MemoryStore["traces"];
  /** Whether the peer enforces deadlines, so that none is enforced here. */
  peerEnforcesDeadlines?: boolean;
}

export class Dispatcher {
  draining = false;
  /** The jobs that run. */
  readonly #running = new Set<Job>();
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
    private readonly room: number,
    private readonly log: Log,
  ) {}

  /** Prepare a program for requests. Throws `ProgramFailed` if its seed candidate cannot be made. */
  static async create(program: Program, settings: Settings, transport: Transport): Promise<Dispatcher> {
    checkProgram(program);
    const seed = await seedOf(program);
    const rows = await Rows.create(program.datasets ?? {}, program.rowSchema, settings.shareRows);
    const discovery = await discoveryOf(program, seed, rows, settings, transport);
    const runner = new Runner(program, { ...settings, enforcesDeadlines: !transport.peerEnforcesDeadlines });
    const jobs = jobsOf(program, runner, rows, transport.traces, discovery);
    const room = settings.concurrency + settings.maxQueue;
    return new Dispatcher(discovery, jobs, rows, transport, room, settings.log);
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
    while (this.#running.size > 0 || this.transport.calls?.outstanding) {
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
    const found = faults(row.params, params);
    if (found.length > 0) throw invalidParams(...found);
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
    const start = (): Job => this.#admitted(this.#prepare(method, params));
    if (typeof callId !== "string" || calls === undefined) {
      const job = start();
      return answerOf(() => job.run(listener), this.log);
    }
    const request = digestOfJson([method, asked]);
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

  /**
   * Return the same job, for whose examples there is room to run or to wait until it ends. Throws `Overloaded` if there is
   * none. A batch larger than all the room is admitted if nothing else is: otherwise it never could be.
   */
  #admitted(job: Job): Job {
    const left = [...this.#running].reduce((sum, each) => sum + examplesLeft(each), 0);
    if (left > 0 && left + examplesLeft(job) > this.room) {
      throw new Overloaded("Overloaded: no room to queue more work", { retry_after_s: RETRY_AFTER_S });
    }
    this.#running.add(job);
    const run = (cancellation: Cancellation): Promise<unknown> => {
      return job.run(cancellation).finally(() => this.#running.delete(job));
    };
    return { ...job, run };
  }

  #offers(capability: string): boolean {
    return this.discovery.capabilities?.includes(capability) ?? false;
  }
}

function examplesLeft({ progress: { done, total } }: Job): number {
  return total - done;
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

type RequestId = string | number | null;

const KEYS = new Set(["jsonrpc", "method", "params", "id"]);

/**
 * Read the envelope of one message; `id` is undefined for a notification, and `params` may be positional. Throws
 * `InvalidRequest`, which is answered with id null as JSON-RPC requires.
 */
function readEnvelope(message: unknown): { method: string; params: object; id: RequestId | undefined } {
  if (!isObject(message)) throw invalid("a request must be an object");
  const { jsonrpc, method, params = {}, id } = message;
  if (jsonrpc !== "2.0") throw invalid('jsonrpc must be "2.0"');
  if (typeof method !== "string") throw invalid("method must be a string");
  if (typeof params !== "object" || params === null) throw invalid("params must be an object");
  if (id !== undefined && !isRequestId(id)) throw invalid("id must be a string, an integer within 2^53 - 1 or null");
  if (Object.keys(message).some((key) => !KEYS.has(key))) {
    throw invalid("a request has the members jsonrpc, method, params and id, and no others");
  }
  return { method, params, id };
}

export function invalid(reason: string): InvalidRequest {
  return new InvalidRequest(undefined, { reason });
}

function isRequestId(id: unknown): id is RequestId {
  return id === null || typeof id === "string" || Number.isSafeInteger(id);
}

/** Write the text of a response whose result or error is JSON already. */
function answerText(id: RequestId, answer: Answer): string {
  const member = "result" in answer ? `"result":${answer.result}` : `"error":${answer.error}`;
  return `{"jsonrpc":"2.0","id":${JSON.stringify(id)},${member}}`;
}

/** Write the text of an error response. */
export function errorText(id: RequestId, error: RpcError): string {
  return JSON.stringify({ jsonrpc: "2.0", id, error: error.toWire() });
}

/** Build the result of `discover`, which stays the same for the life of an instance. */
async function discoveryOf(
  program: Program,
  seed: Candidate,
  rows: Rows,
  settings: Settings,
  transport: Transport,
): Promise<DiscoverResult> {
  const capabilities = [
    ...transport.offers,
    ...offersOf(program),
    ...(rows.held ? ["datasets"] : []),
    "exact_values",
    "openrpc",
  ];
  return {
    protocol_versions: [PROTOCOL_VERSION],
    server: {
      name: "evolverpc",
      version: PACKAGE_VERSION,
      language: "typescript",
      instance_id: crypto.randomUUID(),
    },
    program: {
      name: program.name,
      ...(program.version === undefined ? {} : { version: program.version }),
      ...(program.deterministic === undefined ? {} : { deterministic: program.deterministic }),
      ...(settings.digest === undefined ? {} : { digest: settings.digest }),
      components: Object.keys(seed).map((name) => {
        const description = program.componentDescriptions?.[name];
        return { name, kind: "text", ...(description === undefined ? {} : { description }) };
      }),
      seed_candidate: seed,
    },
    datasets: await rows.describe(),
    capabilities,
    limits: {
      max_concurrency: settings.concurrency,
      max_batch_size: settings.maxBatchSize,
      max_request_bytes: settings.maxRequestBytes,
      max_result_bytes: settings.maxResultBytes,
      ...(settings.exampleTimeoutS === undefined ? {} : { example_timeout_s: settings.exampleTimeoutS }),
      ...(capabilities.includes("batch") ? { max_batch_entries: settings.maxBatchEntries } : {}),
      ...(takesWholeBatches(program) ? { whole_batches: true } : {}),
      ...transport.limits,
    },
  };
}

function offersOf(program: Program): string[] {
  return [
    ...(program.proposeNewTexts ? ["proposals"] : []),
    ...(program.score ? ["scoring"] : []),
    ...(program.readsTrajectory ? ["score_trajectories"] : []),
    ...(isScoreProgram(program) ? [] : ["steps"]),
    ...(program.finalize ? ["finalize"] : []),
    ...(program.makeReflectiveDataset ? ["reflective_datasets", "images"] : []),
  ];
}
