import { type IncomingMessage, request } from "node:http";
import { connect } from "node:net";
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
});

describe("messages that are not requests", () => {
  it.each([
    [
      "a number that overflows",
      '{"jsonrpc": "2.0", "id": 1, "method": "discover", "params": {"_meta": {"x": [1e400]}}}',
    ],
    ["a negative one", '{"jsonrpc": "2.0", "id": -1e400, "method": "discover"}'],
    ["a byte order mark", Buffer.from([0xef, 0xbb, 0xbf, 0x7b, 0x7d])],
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
  it.each(["constructor", "__proto__"])("method %s", async (method) => {
    expect(await errorOf(method, {})).toMatchObject({ code: -32601, data: { method, retryable: false } });
  });
  it("component", async () => {
    const params = { candidate: seed, reflective_dataset: {}, components_to_update: ["toString"] };
    expect(await errorOf("propose_new_texts", params)).toMatchObject({ code: -32022, data: { unknown: ["toString"] } });
  });
  it.each([
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
