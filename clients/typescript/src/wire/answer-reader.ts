/** Read an answer as it passes, for a failure that it states: in its status, its trailers, its body or an event. */

import { builtin } from "../base/runtime.js";
import { joined } from "../base/streams.js";
import { isHolder, jsonIn, read } from "../base/values.js";
import { WIRE } from "../generated/wire.js";
import {
  AWS_THROTTLING,
  type Failure,
  isTransientInGrpc,
  isTransientStatus,
  retryAfterS,
  statedFailure,
} from "./failures.js";

/** Bytes of a body that is read as a whole, and of an event: what is longer states no error. */
const MAX_READ = 64 * 1024;

/** Bytes of events that are looked at together: one look at many costs less than a look at each. */
const LOOK = 8 * 1024;

/** The last bytes of a part of a longer event, which are read again with the next part: a mark of the end may lie across both. */
const MAX_MARK = 64;

/** Of the streams of models that always have an end, and that end. */
const HAS_AN_END = RegExp(WIRE.HAS_AN_END);
const END = RegExp(WIRE.ENDS);

/** Bytes of a compressed body. */
const MAX_COMPRESSED = 256 * 1024;

export type Header = (name: string) => string | undefined;

/** Headers that are the properties of an object. */
export function headerOf(headers: unknown): Header {
  return (name) => read(headers, name)?.toString();
}

interface Zlib {
  unzipSync(bytes: Uint8Array, options: object): Uint8Array;
  brotliDecompressSync(bytes: Uint8Array, options: object): Uint8Array;
  constants: { Z_SYNC_FLUSH: number; BROTLI_OPERATION_FLUSH: number };
}

/** One answer: give it the parts of the body, then ask for the failure. */
export class AnswerReader {
  readonly #read: "nothing" | "whole" | "events";
  readonly #encoding: string | undefined;
  /** What is between events. */
  readonly #separator: "\n" | "\n\n";
  /** What arrived of a compressed body, which is read at its end. */
  readonly #compressed: Uint8Array[] = [];
  #compressedBytes = 0;
  #kept = "";
  #failure: Failure | undefined;
  #mustEnd = false;
  #hasEvents = false;
  #hasEnd = false;
  #isUnreadable = false;

  constructor(
    readonly status: number,
    private readonly header: Header,
  ) {
    const type = header("content-type") ?? "";
    this.#encoding = header("content-encoding")?.replace("identity", "") || undefined;
    this.#separator = /ndjson|jsonl/.test(type) ? "\n" : "\n\n";
    if (isTransientStatus(status))
      this.#failure = { reason: `HTTP ${status}`, status, retryAfterS: retryAfterS(header) };
    if (AWS_THROTTLING.test(header("x-amzn-errortype") ?? "")) this.#state({ reason: "throttled", status });
    this.#trailers(header);
    if (this.#failure !== undefined) this.#read = "nothing";
    else if (status === 400) this.#read = header("x-amzn-requestid") === undefined ? "nothing" : "whole";
    else if (status >= 300) this.#read = "nothing";
    else if (/event-?stream|ndjson|jsonl|grpc-web/.test(type)) this.#read = "events";
    else this.#read = /\bjson\b|\+json|text\/plain/.test(type) ? "whole" : "nothing";
  }

  /** Whether the answer is a stream of events. */
  get isStream(): boolean {
    return this.#read === "events";
  }

  /** Whether it was a stream without the event that ends each stream of its protocol, or without any; to be asked at its end. */
  get isUnfinished(): boolean {
    if (!this.isStream || this.#isUnreadable || this.#compressedBytes > MAX_COMPRESSED) return false;
    return !this.#hasEnd && (this.#mustEnd || !this.#hasEvents);
  }

  /** Look at a part of the body. */
  part(bytes: Uint8Array | string): void {
    if (this.#read === "nothing" || this.#failure !== undefined || this.#kept.length > MAX_READ) return;
    if (typeof bytes !== "string" && this.#encoding !== undefined) {
      this.#compressedBytes += bytes.length;
      if (this.#compressedBytes <= MAX_COMPRESSED) this.#compressed.push(bytes);
      return;
    }
    this.#kept += typeof bytes === "string" ? bytes : textOf(bytes);
    if (this.#read === "events" && this.#kept.length >= LOOK) this.#events();
  }

  /** The failure that the answer states so far; with its last part, if it `isComplete`. */
  failure(isComplete: boolean, trailers?: Header): Failure | undefined {
    if (trailers !== undefined) this.#trailers(trailers);
    if (this.#compressed.length > 0) this.#decompress();
    if (isComplete && this.#failure === undefined && this.#read !== "nothing" && this.#kept.length <= MAX_READ) {
      if (this.status === 400)
        this.#state(AWS_THROTTLING.test(this.#kept) ? { reason: "throttled", status: 400 } : undefined);
      else if (this.#read === "whole")
        this.#state(this.#kept.includes('"error"') ? statedFailure(jsonIn(this.#kept), false) : undefined);
      else this.#events(true);
    } else if (this.#read === "events") this.#events();
    return this.#failure;
  }

  #decompress(): void {
    const parts = this.#compressed;
    const zlib = builtin<Zlib>("node:zlib");
    this.#isUnreadable = zlib === undefined;
    if (zlib === undefined || this.#compressedBytes > MAX_COMPRESSED) return;
    const { BROTLI_OPERATION_FLUSH, Z_SYNC_FLUSH } = zlib.constants;
    try {
      const text = textOf(
        this.#encoding === "br"
          ? zlib.brotliDecompressSync(joined(parts), { finishFlush: BROTLI_OPERATION_FLUSH })
          : zlib.unzipSync(joined(parts), { finishFlush: Z_SYNC_FLUSH }),
      );
      this.#kept = text;
      if (this.#read === "events") this.#events();
    } catch {
      this.#isUnreadable = true; // of another encoding
    }
  }

  #state(failure: Failure | undefined): void {
    if (failure !== undefined) this.#failure ??= { retryAfterS: retryAfterS(this.header), ...failure };
  }

  #trailers(header: Header): void {
    const grpc = Number(header("grpc-status") ?? 0);
    if (isTransientInGrpc(grpc)) this.#state({ reason: `gRPC status ${grpc}`, status: grpc });
  }

  /** Look at the events that are complete, and keep the beginning of the next; at the end of the body `all` are. */
  #events(all = false): void {
    // A "\r" at the end may be half of a "\r\n".
    if (this.#kept.includes("\r")) this.#kept = this.#kept.replace(all ? /\r\n?/g : /\r\n|\r(?!$)/g, "\n");
    const end = all ? this.#kept.length : this.#kept.lastIndexOf(this.#separator);
    if (end === -1 && this.#kept.length <= MAX_READ) return;
    const complete = end === -1 ? this.#kept : this.#kept.slice(0, end);
    this.#kept = end === -1 ? complete.slice(-MAX_MARK) : this.#kept.slice(end + this.#separator.length);
    this.#mustEnd ||= HAS_AN_END.test(complete);
    this.#hasEnd ||= END.test(complete);
    this.#hasEvents ||= /^[^:\s]/m.test(complete);
    if (/error|failed|exception|grpc-status/i.test(complete)) {
      for (const event of complete.split(this.#separator)) this.#event(event);
    }
  }

  #event(event: string): void {
    const grpc = /grpc-status: *(4|8|14)\b/i.exec(event)?.[1];
    const amazon = /:exception-type[^\w:]+(\w+)/.exec(event)?.[1]; // a header of AWS's own kind of event
    if (grpc !== undefined) this.#state({ reason: `gRPC status ${grpc}`, status: Number(grpc) });
    if (amazon !== undefined && !/^validation|accessdenied/i.test(amazon)) this.#state({ reason: amazon });
    const isError = /^event: ?error$/m.test(event);
    if (!isError && !/error|failed/.test(event)) return;
    const lines = event.split("\n").flatMap((line) => (/^data:|^\{/.test(line) ? [line.replace(/^data:/, "")] : []));
    const json = jsonIn(lines.join("\n"));
    for (const each of json === undefined ? lines.map(jsonIn) : [json]) {
      this.#state(statedFailure(isError && !read(each, "error") ? { error: each } : each, true));
    }
    if (isError && !isHolder(json)) this.#state(statedFailure({ error: lines.join(" ") }, true));
  }
}

/** One character for each byte: only ASCII is looked for, and a part may end within a character. */
function textOf(bytes: Uint8Array): string {
  return "latin1Slice" in bytes ? (bytes as LatinBytes).latin1Slice() : latin1.decode(bytes);
}

/** A `Buffer` of Node. */
interface LatinBytes extends Uint8Array {
  latin1Slice(): string;
}

const latin1 = new TextDecoder("latin1");
