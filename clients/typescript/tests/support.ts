// Servers on ephemeral ports, a client that can send any request, in particular invalid ones, and what else many tests need.
import { mkdtempSync, rmSync } from "node:fs";
import { type ClientRequest, type IncomingMessage, request } from "node:http";
import type { AddressInfo, Server } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { expect, onTestFinished } from "vitest";
import { faults } from "../src/base/validate.js";
import type { BatchProgram, FunctionProgram, Program } from "../src/program/program.js";
import type { FetchHandler } from "../src/server/handler.js";
import { type RunningServer, type ServeOptions, serve } from "../src/server/serve.js";

/** Serves a program until the test is over. */
export async function served<Data, Output>(
  program: Program<Data, Output>,
  options: ServeOptions = {},
): Promise<RunningServer> {
  const server = await serve(program, { announce: () => {}, ownsProcess: false, ...options });
  onTestFinished(() => server.close());
  return server;
}

/** A program of one component whose functions a test overrides. */
export function programOf(parts: Partial<FunctionProgram<any, any>> = {}): FunctionProgram<any, any> {
  return { name: "test", seedCandidate: { rules: "" }, run: (example) => example, score: () => 1, ...parts };
}

export function batchProgramOf(parts: Partial<BatchProgram<any, any>>): BatchProgram<any, any> {
  return { name: "test", seedCandidate: { rules: "" }, evaluate: (_, batch) => batch.map(() => 1), ...parts };
}

export interface RawResponse {
  status: number;
  headers: IncomingMessage["headers"];
  text: string;
  json: any;
}

export interface RawRequest {
  path?: string;
  method?: string;
  headers?: Record<string, string | undefined>;
  body?: string | Buffer | Readable;
  /** The request may be left unfinished. */
  onRequest?: (request: ClientRequest) => void;
}

/** One HTTP request, with the right token and content type unless `headers` overrides them (undefined removes one). */
export function raw(
  server: RunningServer,
  { path = "/rpc", method = "POST", ...rest }: RawRequest,
): Promise<RawResponse> {
  const headers = Object.entries({
    authorization: `Bearer ${server.token}`,
    "content-type": "application/json",
    ...rest.headers,
  }).filter(([, value]) => value !== undefined);
  return new Promise((resolve, reject) => {
    const sent = request(new URL(path, server.url), { method, headers: Object.fromEntries(headers) as never });
    sent.on("response", async (response) => {
      const chunks: Buffer[] = [];
      for await (const chunk of response) chunks.push(chunk);
      const text = Buffer.concat(chunks).toString();
      resolve({ status: response.statusCode ?? 0, headers: response.headers, text, json: jsonOrNull(text) });
    });
    sent.on("error", reject);
    if (rest.onRequest) rest.onRequest(sent);
    else if (rest.body instanceof Readable) rest.body.pipe(sent);
    else sent.end(rest.body ?? "");
  });
}

function jsonOrNull(text: string): unknown {
  return text === "" ? null : JSON.parse(text);
}

/** One call; the whole JSON-RPC answer. */
export async function call(server: RunningServer, method: string, params: object = {}, meta?: object): Promise<any> {
  const sent = meta === undefined ? params : { ...params, _meta: meta };
  return (await raw(server, { body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params: sent }) })).json;
}

/** The results of evaluating examples of such data with a candidate of one component. */
export async function evaluate(
  server: RunningServer,
  data: unknown[],
  more: object = {},
  meta?: object,
): Promise<any[]> {
  const batch = data.map((item, at) => ({ id: String(at), data: item }));
  const answer = await call(server, "evaluate", { candidate: { rules: "" }, batch, ...more }, meta);
  if (answer.error) throw new Error(JSON.stringify(answer.error));
  return answer.result.results;
}

/** The params of an evaluation of one example. */
export const ONE = { candidate: { rules: "" }, batch: [{ id: "a", data: "x" }] };

/** The results of examples of a program, by default traced, and what it logged. */
export async function ranProgram(
  program: FunctionProgram<any, any>,
  data: unknown[] = [0],
  params: object = { capture_traces: true },
  options: ServeOptions = {},
) {
  const logged: string[] = [];
  const server = await served(program, { log: (message) => logged.push(message), ...options });
  const results = await evaluate(server, data, { candidate: program.seedCandidate, ...params });
  for (const { trajectory } of results) {
    for (const recorded of trajectory?.steps ?? []) expect(faults("Step", recorded)).toEqual([]);
  }
  return { server, logged, results, result: results[0], steps: results[0].trajectory?.steps };
}

/** One call of a fetch handler whose token is `secret`. */
export function callOf(method: string, params: object = {}, headers: Record<string, string> = {}): Request {
  return new Request("http://localhost/rpc", {
    method: "POST",
    headers: { authorization: "Bearer secret", "content-type": "application/json", ...headers },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params }),
  });
}

/** The whole JSON-RPC answer of such a handler. */
export async function answerOf(handle: FetchHandler, method: string, params: object = {}): Promise<any> {
  return (await handle(callOf(method, params))).json();
}

/** The host and port at which a server listens from now on, on this machine. */
export async function hostOf(server: Server): Promise<string> {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return `127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** A folder that is there until the test is over. */
export function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "evolverpc-test-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  return folder;
}

/** A promise to be settled by hand. */
export function gate<Value = void>(): { opened: Promise<Value>; open: (value: Value) => void } {
  let open: (value: Value) => void = () => {};
  const opened = new Promise<Value>((resolve) => {
    open = resolve;
  });
  return { opened, open };
}
