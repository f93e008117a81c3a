/** Serve a program over standard input and output, one JSON message per line, for `evolverpc serve --command`. */

import type { Readable } from "node:stream";
import { Cancellation } from "../base/cancellation.js";
import { readKnownOptions } from "../base/configuration.js";
import { ENDPOINT_OPTIONS, type EndpointOptions, type Settings } from "../base/options.js";
import { LimitExceeded } from "../generated/errors.js";
import type { Program } from "../program/program.js";
import { inPlace } from "../wire/place.js";
import { Calls } from "./calls.js";
import { Dispatcher, errorText, type Transport } from "./dispatcher.js";
import { asSetupError, captureOutput, digestOfScript } from "./node-process.js";
import { TrajectoryStore } from "./trajectory-store.js";

const NEWLINE = 0x0a;
const DEFAULT_MAX_LINE_BYTES = 512 * 2 ** 20;

/**
 * Answer requests until the input ends; then, or on SIGTERM, the process exits.
 *
 * The program's own output goes to the standard error: the standard output carries messages only. `evolverpc serve`
 * enforces deadlines: its own, or `exampleTimeoutS` if that is given and smaller.
 */
export async function serveStdio<Data, Output, Component extends string = string>(
  program: Program<Data, Output, Component>,
  options: EndpointOptions = {},
): Promise<never> {
  try {
    const { exampleTimeoutS = null, maxRequestBytes = DEFAULT_MAX_LINE_BYTES } = options;
    const given = { ...options, exampleTimeoutS, maxRequestBytes };
    return await answerUntilEnd(program as Program, readKnownOptions(program, given, ENDPOINT_OPTIONS));
  } catch (error) {
    throw asSetupError(error, serveStdio);
  }
}

async function answerUntilEnd(program: Program, given: Settings): Promise<never> {
  const write = claimStdout();
  captureOutput();
  process.on("SIGTERM", () => process.exit(0));
  const settings = { ...given, digest: given.digest ?? digestOfScript() };
  const dispatcher = await Dispatcher.create(program, settings, stdioTransport());
  const isBehindServer = process.env.GEPA_STDIO !== undefined;
  const open = new Cancellation();
  for await (const line of linesOf(process.stdin, settings.maxRequestBytes)) {
    if (line === undefined) {
      const details = { limit: "max_request_bytes", allowed: settings.maxRequestBytes };
      write(errorText(null, new LimitExceeded(undefined, details)));
    } else {
      const answer = () => dispatcher.answerBytes(line, open);
      const request = isBehindServer ? requestId(line) : undefined;
      (request === undefined ? answer() : inPlace({ request }, answer)).then(({ body }) => {
        if (body !== null) write(body);
      });
    }
  }
  open.cancel();
  process.exit(0);
}

/** A pipe to one server, which keeps its own state: calls have ids only so that they can be cancelled. */
function stdioTransport(): Transport {
  return {
    offers: ["cancel"],
    calls: new Calls({ abandonAfterS: Number.POSITIVE_INFINITY, keepAnswersS: 0, maxAnswerBytes: 0 }),
    traces: new TrajectoryStore(0),
    peerEnforcesDeadlines: true,
  };
}

/** The id of a request as `evolverpc serve` writes it. */
function requestId(line: Buffer): number | undefined {
  const found = /^\{"jsonrpc":"2\.0","id":(\d{1,15}),/.exec(line.subarray(0, 60).toString());
  return found === null ? undefined : Number(found[1]);
}

/** Reserve the standard output for frames and return the function that writes one; all else goes to the standard error. */
function claimStdout(): (frame: string) => void {
  const write = process.stdout.write.bind(process.stdout);
  process.stdout.write = process.stderr.write.bind(process.stderr) as typeof process.stdout.write;
  return (frame) => {
    write(`${frame}\n`);
  };
}

/** Yield the lines of a stream without blank ones; undefined for a line longer than `maxBytes`, which is skipped. */
async function* linesOf(stream: Readable, maxBytes: number): AsyncGenerator<Buffer | undefined> {
  let parts: Buffer[] = [];
  let length = 0;
  for await (const chunk of stream as AsyncIterable<Buffer>) {
    let from = 0;
    for (let end = chunk.indexOf(NEWLINE); end !== -1; end = chunk.indexOf(NEWLINE, from)) {
      parts.push(chunk.subarray(from, end));
      const line = length + end - from <= maxBytes ? Buffer.concat(parts) : undefined;
      if (line === undefined || !isBlank(line)) yield line;
      parts = [];
      length = 0;
      from = end + 1;
    }
    length += chunk.length - from;
    if (length <= maxBytes) parts.push(chunk.subarray(from));
    else parts = [];
  }
}

function isBlank(line: Buffer): boolean {
  return line.every((byte) => byte === 0x20 || byte === 0x0d || byte === 0x09);
}
