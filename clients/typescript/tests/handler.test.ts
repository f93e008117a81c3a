import { createContext, runInContext } from "node:vm";
import { buildSync } from "esbuild";
import { expect, it } from "vitest";
import { SetupError } from "../src/base/configuration.js";
import { handler } from "../src/server/handler.js";
import { MemoryStore } from "../src/server/store.js";
import { answerOf, callOf, ONE, programOf } from "./support.js";

const token = "secret";

it("throws without a token, and without a program", () => {
  expect(() => handler(programOf(), {} as never)).toThrow(/token/);
  expect(() => handler(programOf(), { token: "" })).toThrow(SetupError);
  expect(() => handler({ name: "x", seedCandidate: { a: "" } } as never, { token })).toThrow(/run/);
});

it("serves the core, and what the program offers, without a store", async () => {
  const componentDescriptions = { rules: "when to refuse" };
  const handle = handler(programOf({ datasets: { train: [1] }, componentDescriptions }), { token });
  const { result } = await answerOf(handle, "discover");
  expect(result.program.components).toEqual([{ name: "rules", kind: "text", description: "when to refuse" }]);
  expect(result.capabilities).toEqual([
    "batch",
    "example_timeout",
    "scoring",
    "steps",
    "datasets",
    "exact_values",
    "openrpc",
  ]);
  expect((await answerOf(handle, "evaluate", ONE)).result.results[0].output).toBe("x");
  for (const method of ["get_result", "cancel"]) {
    expect((await answerOf(handle, method, { call_id: "a" })).error.code).toBe(-32601);
  }
});

it("ignores what it does not offer in `_meta`", async () => {
  const run = (_: unknown, __: unknown, { trace }: { trace: unknown[] }) => trace.push("looked");
  const handle = handler(programOf({ run } as never), { token });
  const sent = { ...ONE, capture_traces: true, _meta: { call_id: "a", group: "g" } };
  expect((await answerOf(handle, "evaluate", sent)).result.results[0].trajectory).toEqual(["looked"]);
});

it("refuses several candidates in one call, which it does not offer", async () => {
  const handle = handler(programOf(), { token });
  const items = [{ candidate: ONE.candidate, size: 1 }];
  const { error } = await answerOf(handle, "evaluate", { ...ONE, items });
  expect(error.code).toBe(-32602);
  expect(error.data.errors[0].path).toBe("items");
});

it("offers with a store the capabilities that need state", async () => {
  let ran = 0;
  const handle = handler(programOf({ run: () => ++ran }), { token, store: new MemoryStore() });
  const { capabilities } = (await answerOf(handle, "discover")).result;
  expect(capabilities).toEqual(expect.arrayContaining(["idempotency", "async", "cancel", "refs"]));
  const sent = { ...ONE, _meta: { call_id: "a" } };
  const first = await answerOf(handle, "evaluate", sent);
  expect(await answerOf(handle, "evaluate", sent)).toEqual(first);
  expect(await answerOf(handle, "get_result", { call_id: "a" })).toEqual(first);
  expect(ran).toBe(1);
});

it("refuses what the server refuses", async () => {
  const handle = handler(programOf(), { token, maxRequestBytes: 1000, allowedHosts: ["Example.com"] });
  const status = async (sent: Request): Promise<number> => (await handle(sent)).status;
  expect(await status(callOf("discover", {}, { authorization: "Bearer no" }))).toBe(401);
  for (const origin of ["https://attacker.example", "null", "http://localhost:3000"]) {
    const refused = await handle(callOf("discover", {}, { origin }));
    expect([refused.status, refused.headers.get("access-control-allow-origin")]).toEqual([403, null]);
  }
  expect(await status(callOf("discover", {}, { "content-type": "text/plain" }))).toBe(415);
  expect(await status(callOf("discover", {}, { "content-encoding": "identity, gzip" }))).toBe(415);
  expect(await status(callOf("discover", { _meta: { pad: "x".repeat(1000) } }))).toBe(413);
  expect(await status(new Request("http://localhost/rpc"))).toBe(405);
  expect(await status(new Request("http://localhost/other", { method: "POST" }))).toBe(404);
  expect(await status(new Request("https://other.example/health"))).toBe(403);
  expect(await status(new Request("https://example.com/health"))).toBe(200);
  expect(await status(callOf("discover", {}, { host: "other.example" }))).toBe(403);
  expect(await status(new Request("http://localhost/health"))).toBe(200);
  expect(await status(callOf("discover"))).toBe(200);
});

it("reads the token from its own header, which takes precedence if present", async () => {
  const handle = handler(programOf(), { token });
  const status = async (headers: Record<string, string>): Promise<number> =>
    (await handle(callOf("discover", {}, headers))).status;
  expect(await status({ "x-gepa-token": token, authorization: "Bearer of-the-proxy" })).toBe(200);
  expect(await status({ "x-gepa-token": token, authorization: "" })).toBe(200);
  expect(await status({ "x-gepa-token": "wrong" })).toBe(401);
  expect(await status({ "x-gepa-token": "" })).toBe(401);
  expect(await status({ "x-gepa-token": `Bearer ${token}` })).toBe(401);
});

it("answers listed web pages, and only those", async () => {
  const handle = handler(programOf(), { token, allowedOrigins: ["https://ours.example"] });
  const listed = await handle(callOf("discover", {}, { origin: "https://ours.example" }));
  expect(listed.headers.get("access-control-allow-origin")).toBe("https://ours.example");
  expect(listed.headers.get("vary")).toBe("origin"); // else a cache could give the answer to another page
  const headers = { origin: "https://ours.example", "access-control-request-method": "POST" };
  const preflight = await handle(new Request("http://localhost/rpc", { method: "OPTIONS", headers }));
  expect([preflight.status, preflight.headers.get("access-control-allow-headers")]).toEqual([
    204,
    "authorization, content-type, x-gepa-token",
  ]);
});

it("may be mounted below a path", async () => {
  const handle = handler(programOf(), { token, basePath: "/api/gepa" });
  expect((await handle(new Request("http://localhost/api/gepa/health"))).status).toBe(200);
  expect((await handle(new Request("http://localhost/health"))).status).toBe(404);
});

it("a program without a seed reports the reason, is unhealthy, and is tried again", async () => {
  let attempts = 0;
  const seedCandidate = () => {
    if (++attempts < 3) throw new Error("no such table");
    return { rules: "" };
  };
  const handle = handler(programOf({ seedCandidate }), { token });
  const { error } = await answerOf(handle, "discover");
  expect(error).toMatchObject({ code: -32025, message: "Error: no such table", data: { stage: "seed_candidate" } });
  expect((await handle(new Request("http://localhost/health"))).status).toBe(503);
  expect((await handle(new Request("http://localhost/health"))).status).toBe(200);
});

it("stops the program when the request is aborted", async () => {
  const controller = new AbortController();
  const aborted = new Promise((resolve) => {
    const run = (_: unknown, __: unknown, { signal }: { signal: AbortSignal }) => {
      signal.addEventListener("abort", resolve);
      controller.abort();
      return new Promise(() => {});
    };
    handler(programOf({ run }), { token })(new Request(callOf("evaluate", ONE), { signal: controller.signal }));
  });
  await aborted;
});

it("runs on web standards alone", async () => {
  const bundle = buildSync({
    entryPoints: [new URL("../src/web.ts", import.meta.url).pathname],
    bundle: true,
    platform: "neutral",
    format: "iife",
    globalName: "evolverpc",
    write: false,
  });
  const web = {
    AbortController,
    AbortSignal,
    ArrayBuffer,
    DOMException,
    Headers,
    Request,
    Response,
    TextDecoder,
    TextEncoder,
    URL,
    Uint8Array,
  };
  const context = createContext(
    { ...web, clearTimeout, console, crypto, performance, setTimeout, structuredClone },
    // As Workers have it: nothing is compiled from text.
    { codeGeneration: { strings: false, wasm: false } },
  );
  runInContext(bundle.outputFiles[0]?.text ?? "", context);
  const handle: (sent: Request) => Promise<Response> = runInContext(
    `evolverpc.handler(evolverpc.conformanceProgram, { token: "secret", store: new evolverpc.MemoryStore() })`,
    context,
  );
  const sent = { candidate: { system: "a", style: "b" }, batch: [{ id: "a", data: { echo_candidate: true } }] };
  const { result } = await answerOf(handle, "evaluate", { ...sent, _meta: { call_id: "a" } });
  expect(result.results).toMatchObject([{ status: "ok", output: { system: "a", style: "b" } }]);
});
