import { type IncomingMessage, request } from "node:http";
import { connect } from "node:net";
import { Readable } from "node:stream";
import { text } from "node:stream/consumers";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { conformanceProgram } from "../src/program/conformance.js";
import { type RunningServer, serve } from "../src/server/serve.js";
import { type RawRequest, type RawResponse, raw } from "./support.js";

let server: RunningServer;
beforeAll(async () => {
  server = await serve(conformanceProgram, { announce: () => {}, ownsProcess: false });
});
afterAll(() => server.close());

const discover = { jsonrpc: "2.0", id: 1, method: "discover" };
const seed = { system: "a", style: "b" };

async function stillServes(): Promise<void> {
  expect((await raw(server, { body: JSON.stringify(discover) })).json.result.program.name).toBe("conformance");
}

async function refused(sent: RawRequest, status: number, code: number): Promise<RawResponse> {
  const response = await raw(server, sent);
  expect({ status: response.status, code: response.json.error.code, id: response.json.id }).toEqual({
    status,
    code,
    id: null,
  });
  expect(response.json.error.data.retryable).toBe(false);
  await stillServes();
  return response;
}

describe("authentication, Host and Origin", () => {
  const body = JSON.stringify(discover);
  it("a foreign Host is 403, token or not", async () => {
    const response = await refused({ body, headers: { host: "attacker.example" } }, 403, -32021);
    expect(response.json.error.data.reason).toBe("host");
    await refused({ body, headers: { host: "localhost.attacker.example", authorization: undefined } }, 403, -32021);
  });
  it("two Hosts are 403, whichever comes first", async () => {
    for (const hosts of [
      ["localhost", "attacker.example"],
      ["attacker.example", "localhost"],
    ]) {
      const headers = ["Host", hosts[0], "Host", hosts[1], "Authorization", `Bearer ${server.token}`] as string[];
      const response = await new Promise<IncomingMessage>((resolve) =>
        request(server.url, { method: "POST", headers }, resolve).end(),
      );
      expect(response.statusCode).toBe(403);
      expect(JSON.parse(await text(response)).error.data.reason).toBe("host");
    }
    await stillServes();
  });
  it("the names of this machine are accepted with any port", async () => {
    for (const host of ["localhost", "LOCALHOST:1", "127.0.0.1:9", "[::1]:9"]) {
      expect((await raw(server, { body, headers: { host } })).status).toBe(200);
    }
  });
  it("health needs no token, but an accepted Host", async () => {
    const health = { path: "/health", method: "GET", headers: { authorization: undefined } };
    expect((await raw(server, health)).json).toEqual({ status: "ok" });
    await refused({ ...health, headers: { host: "attacker.example" } }, 403, -32021);
  });
});

describe("messages that are not requests", () => {
  it.each([
    ["an empty body", ""],
    ["truncated JSON", '{"jsonrpc": "2.0", "id": 1, "method": "disc'],
    ["two values", '{"a": 1} {"b": 2}'],
    ["NaN", '{"jsonrpc": "2.0", "id": 1, "method": "discover", "params": {"_meta": {"x": NaN}}}'],
    [
      "a number that overflows",
      '{"jsonrpc": "2.0", "id": 1, "method": "discover", "params": {"_meta": {"x": [1e400]}}}',
    ],
    ["a negative one", '{"jsonrpc": "2.0", "id": -1e400, "method": "discover"}'],
    ["invalid UTF-8", Buffer.from([0x22, 0xff, 0xfe, 0x22])],
    ["a byte order mark", Buffer.from([0xef, 0xbb, 0xbf, 0x7b, 0x7d])],
    ["10,000 levels", `${"[".repeat(10_000)}${"]".repeat(10_000)}`],
    ["a million brackets left open", "[".repeat(1_000_000)],
  ])("%s is a parse error", async (_, body) => {
    await refused({ body }, 400, -32700);
  });
  it("brackets inside strings do not count as nesting", async () => {
    const body = JSON.stringify({ ...discover, params: { _meta: { x: '["\\'.repeat(2000) } } });
    expect((await raw(server, { body })).status).toBe(200);
  });
});

describe("sizes", () => {
  const declared = String(200 * 2 ** 20);
  it("a body declared as 200 MB is refused before it is sent", async () => {
    const response = await refused(
      { headers: { "content-length": declared }, onRequest: (request) => request.write("{") },
      413,
      -32031,
    );
    expect(response.json.error.data).toMatchObject({ limit: "max_request_bytes", allowed: 64 * 2 ** 20 });
  });
  it("a client that expects 100-continue for 200 MB does not get it", async () => {
    let asked = false;
    const headers = { "content-length": declared, expect: "100-continue" };
    const onRequest: RawRequest["onRequest"] = (request) => {
      request.on("continue", () => {
        asked = true;
      });
      request.flushHeaders();
    };
    await refused({ headers, onRequest }, 413, -32031);
    expect(asked).toBe(false);
  });
  it("a chunked body is counted while it arrives", async () => {
    const chunk = Buffer.alloc(2 ** 20, 0x20);
    const endless = Readable.from(
      (function* () {
        for (let sent = 0; sent < 200; sent++) yield chunk;
      })(),
    );
    await refused({ body: endless }, 413, -32031);
  });
  it("a client that expects 100-continue is answered", async () => {
    const body = JSON.stringify(discover);
    const headers = { "content-length": String(body.length), expect: "100-continue" };
    const response = await raw(server, {
      headers,
      onRequest: (request) => request.on("continue", () => request.end(body)),
    });
    expect(response.status).toBe(200);
  });
  it("a batch of 100,000 is one error that states the limit", async () => {
    const { json, status } = await raw(server, { body: JSON.stringify(Array(100_000).fill(discover)) });
    expect(status).toBe(200);
    expect(json).toMatchObject({ id: null, error: { code: -32031 } });
    expect(json.error.data).toEqual({ retryable: false, limit: "max_batch_entries", allowed: 100, given: 100_000 });
    await stillServes();
  });
  it("more examples than a call may hold are refused", async () => {
    const batch = Array.from({ length: 1001 }, (_, at) => ({ id: String(at), data: {} }));
    const error = await errorOf("evaluate", { candidate: seed, batch });
    expect(error).toMatchObject({ code: -32031, data: { limit: "max_batch_size", allowed: 1000, given: 1001 } });
  });
  it("a connection cut in the middle of a body affects no other request", async () => {
    const { port, hostname } = new URL(server.url);
    const socket = connect(Number(port), hostname);
    const lines = ["POST /rpc HTTP/1.1", "host: localhost", `authorization: Bearer ${server.token}`];
    socket.write([...lines, "content-type: application/json", "content-length: 1000", "", '{"jsonrpc"'].join("\r\n"));
    await new Promise((resolve) => socket.once("connect", resolve));
    socket.destroy();
    await stillServes();
  });
});

async function errorOf(method: string, params: object): Promise<any> {
  const { json, status } = await raw(server, { body: JSON.stringify({ ...discover, method, params }) });
  expect(status).toBe(200);
  expect(json.id).toBe(1);
  await stillServes();
  return json.error;
}

describe("unknown methods, fields and examples", () => {
  it.each(["no_such_method", "constructor", "__proto__", "apply_mutation"])("method %s", async (method) => {
    expect(await errorOf(method, {})).toMatchObject({ code: -32601, data: { method, retryable: false } });
  });
  it.each([
    [{ candidate: seed, batch: [], colour: 1 }, "colour"],
    [{ candidate: seed, batch: [{ id: "a", data: 1, dta: 2 }] }, "batch[0].dta"],
    [{ candidate: seed }, "batch"],
    [{ candidate: { ...seed, style: null }, batch: [] }, "candidate.style"],
    [{ candidate: seed, batch: [{ id: "a" }] }, "batch[0]"],
    [{ candidate: seed, batch: [], _meta: { wait_s: 1 } }, "_meta.wait_s"],
    [{ candidate: seed, batch: [], _meta: { call_id: "" } }, "_meta.call_id"],
  ])("an invalid field is named by its path: %j", async (params, path) => {
    const error = await errorOf("evaluate", params);
    expect(error.code).toBe(-32602);
    expect(error.data.errors[0]).toMatchObject({ path, message: expect.any(String) });
  });
  it("component", async () => {
    const error = await errorOf("evaluate", { candidate: { system: "a", colour: "b" }, batch: [] });
    expect(error).toMatchObject({ code: -32022, data: { unknown: ["colour"], missing: ["style"] } });
    const params = { candidate: seed, reflective_dataset: {}, components_to_update: ["toString"] };
    expect(await errorOf("propose_new_texts", params)).toMatchObject({ code: -32022, data: { unknown: ["toString"] } });
  });
  it.each([
    ["nowhere", "0"],
    ["train", "5"],
    ["train", "01"],
    ["train", "-1"],
    ["train", "length"],
  ])("example %s/%s", async (split, id) => {
    const error = await errorOf("evaluate", { candidate: seed, batch: [{ id, split }] });
    expect(error).toMatchObject({ code: -32023, data: { split, ids: [id] } });
  });
  it("version", async () => {
    const error = await errorOf("evaluate", { from_a_later_version: 1, _meta: { protocol_version: "2" } });
    expect(error).toMatchObject({ code: -32020, data: { supported: ["1"], requested: "2" } });
  });
});

describe("arrays of requests", () => {
  const answered = async (message: unknown): Promise<RawResponse> => raw(server, { body: JSON.stringify(message) });

  it("every bad entry has an error of its own", async () => {
    const { json, status } = await answered([1, discover, [], { jsonrpc: "2.0", method: "discover" }]);
    expect(status).toBe(200);
    expect(json.map((answer: any) => answer.error?.code ?? "ok")).toEqual([-32600, "ok", -32600]);
  });
  it("nothing but notifications has an empty answer", async () => {
    const { text, status } = await answered([{ jsonrpc: "2.0", method: "discover" }]);
    expect({ text, status }).toEqual({ text: "", status: 204 });
  });
  it("an empty array is one invalid request", async () => {
    expect((await answered([])).json).toMatchObject({ id: null, error: { code: -32600 } });
  });
});
