import { randomUUID } from "node:crypto";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, it } from "vitest";
import type { ServeOptions } from "../src/server/serve.js";
import { call, gate, programOf, raw, served } from "./support.js";

const one = { candidate: { rules: "" }, batch: [{ id: "a", data: "x" }] };

/** A server whose examples wait for `open`, and count how often they ran. */
async function gated(options: ServeOptions = {}) {
  const { opened, open } = gate();
  const ran = { times: 0, aborted: gate() };
  const server = await served(
    programOf({
      run: (data, _, { signal }) => {
        ran.times++;
        signal.addEventListener("abort", () => ran.aborted.open());
        return opened.then(() => data);
      },
      proposeNewTexts: async () => {
        await opened;
        return {};
      },
    }),
    options,
  );
  return { server, open, ran, callId: randomUUID() };
}

it("a repeated call returns the same answer and runs once, joined while it runs or answered afterwards", async () => {
  const { server, open, ran, callId } = await gated();
  const joined = [
    call(server, "evaluate", one, { call_id: callId }),
    call(server, "evaluate", one, { call_id: callId }),
  ];
  while (ran.times === 0) await call(server, "discover");
  open();
  const [first, second] = await Promise.all(joined);
  expect(second).toEqual(first);
  const reordered = { batch: [{ data: "x", id: "a" }], candidate: { rules: "" } };
  expect(await call(server, "evaluate", reordered, { call_id: callId, traceparent: "00" })).toEqual(first);
  expect(ran.times).toBe(1);
});

it("the same id with other params, or for another method, is a conflict", async () => {
  const { server, open, callId } = await gated();
  open();
  await call(server, "evaluate", one, { call_id: callId });
  const other = { ...one, capture_traces: true };
  expect((await call(server, "evaluate", other, { call_id: callId })).error.code).toBe(-32029);
  const proposal = { candidate: { rules: "" }, reflective_dataset: {}, components_to_update: [] };
  expect((await call(server, "propose_new_texts", proposal, { call_id: callId })).error.code).toBe(-32029);
});

it("a refusal is not stored", async () => {
  const { server, open, callId } = await gated();
  open();
  const wrong = { ...one, candidate: { colour: "" } };
  expect((await call(server, "evaluate", wrong, { call_id: callId })).error.code).toBe(-32022);
  expect((await call(server, "get_result", { call_id: callId })).error.code).toBe(-32028);
  expect((await call(server, "evaluate", one, { call_id: callId })).result.results[0].status).toBe("ok");
});

it("a call that does not finish in time is pending and can be collected repeatedly", async () => {
  const { server, open, callId } = await gated();
  const pending = await call(server, "evaluate", one, { call_id: callId, wait_s: 0 });
  expect(pending.result).toEqual({ pending: { call_id: callId, progress: { done: 0, total: 1 } } });
  expect((await call(server, "get_result", { call_id: callId, wait_s: 0.01 })).result).toEqual(pending.result);
  const waiting = call(server, "get_result", { call_id: callId, wait_s: 10 });
  open();
  const { result } = await waiting;
  expect(result.results).toMatchObject([{ status: "ok", output: "x" }]);
  expect((await call(server, "get_result", { call_id: callId })).result).toEqual(result);
});

it("a call with an id outlives its connection", async () => {
  const { server, open, ran, callId } = await gated();
  const body = JSON.stringify({
    jsonrpc: "2.0",
    id: 1,
    method: "evaluate",
    params: { ...one, _meta: { call_id: callId } },
  });
  const lost = raw(server, {
    onRequest: (request) => {
      request.end(body);
      const cut = async () => {
        while (ran.times === 0) await call(server, "discover");
        request.destroy();
      };
      cut();
    },
  });
  await expect(lost).rejects.toThrow();
  open();
  expect((await call(server, "get_result", { call_id: callId, wait_s: 10 })).result.results[0].output).toBe("x");
  expect(ran.times).toBe(1);
});

it("a call without an id is cancelled when its connection closes", async () => {
  const { server, ran } = await gated();
  const lost = raw(server, {
    onRequest: (request) => {
      request.end(JSON.stringify({ jsonrpc: "2.0", id: 1, method: "evaluate", params: one }));
      const cut = async () => {
        while (ran.times === 0) await call(server, "discover");
        request.destroy();
      };
      cut();
    },
  });
  await expect(lost).rejects.toThrow();
  await ran.aborted.opened;
});

it("a cancelled evaluation keeps what is finished", async () => {
  const { opened } = gate();
  const server = await served(programOf({ run: (data) => (data === "hang" ? opened : data) }), { concurrency: 2 });
  const batch = ["quick", "hang", "hang", "hang"].map((data, at) => ({ id: String(at), data }));
  const params = { candidate: { rules: "" }, batch };
  let progress = { done: 0 };
  while (progress.done === 0) {
    progress = (await call(server, "evaluate", params, { call_id: "c", wait_s: 0.01 })).result.pending.progress;
  }
  expect((await call(server, "cancel", { call_id: "c" })).result).toEqual({ status: "cancelled" });
  const { result } = await call(server, "get_result", { call_id: "c" });
  expect(result.results.map(({ status }: any) => status)).toEqual(["ok", "cancelled", "cancelled", "cancelled"]);
  expect(result.results[1]).toMatchObject({ score: null, output: null, seconds: expect.any(Number) });
  expect((await call(server, "cancel", { call_id: "c" })).result).toEqual({ status: "finished" });
  expect((await call(server, "cancel", { call_id: "never" })).error.code).toBe(-32028);
});

it("another method that is cancelled ends with an error", async () => {
  const { server, callId } = await gated();
  const params = { candidate: { rules: "" }, reflective_dataset: {}, components_to_update: [] };
  await call(server, "propose_new_texts", params, { call_id: callId, wait_s: 0 });
  await call(server, "cancel", { call_id: callId });
  expect((await call(server, "get_result", { call_id: callId })).error).toMatchObject({
    code: -32027,
    data: { retryable: true },
  });
});

it("a call that no request waits for is abandoned", async () => {
  const { server, ran, callId } = await gated({ abandonAfterS: 0.05 });
  await call(server, "evaluate", one, { call_id: callId, wait_s: 0 });
  await ran.aborted.opened;
  const { result } = await call(server, "get_result", { call_id: callId, wait_s: 5 });
  expect(result.results[0].status).toBe("cancelled");
});

it("answers are evicted when they are too old or too many", async () => {
  const { server, open } = await gated({ keepAnswersS: 0.02 });
  open();
  await call(server, "evaluate", one, { call_id: "old" });
  await new Promise((resolve) => setTimeout(resolve, 40));
  expect((await call(server, "get_result", { call_id: "old" })).error.code).toBe(-32028);

  const small = await gated({ maxAnswerBytes: 3000 });
  small.open();
  for (const id of ["first", "second", "third"]) await call(small.server, "evaluate", one, { call_id: id });
  expect((await call(small.server, "get_result", { call_id: "first" })).error.code).toBe(-32028);
  await call(small.server, "get_result", { call_id: "second" });
  await call(small.server, "evaluate", one, { call_id: "fourth" });
  expect((await call(small.server, "get_result", { call_id: "third" })).error.code).toBe(-32028);
  expect((await call(small.server, "get_result", { call_id: "second" })).result).toBeDefined();

  const least = await gated({ maxAnswerBytes: 1 });
  least.open();
  await call(least.server, "evaluate", one, { call_id: "newest" });
  expect((await call(least.server, "get_result", { call_id: "newest" })).result).toBeDefined();
});

it("a stored answer does not keep its request in memory", async () => {
  setFlagsFromString("--expose-gc");
  const collectGarbage: () => void = runInNewContext("gc");
  const asked: WeakRef<object>[] = [];
  const server = await served(programOf({ run: (data) => asked.push(new WeakRef(data)) }));
  for (const id of ["a", "b", "c"]) {
    await call(server, "evaluate", { ...one, batch: [{ id, data: { id } }] }, { call_id: id, wait_s: 10 });
  }
  const kept = () => asked.filter((data) => data.deref() !== undefined).length;
  for (let turn = 0; turn < 50 && kept() > 0; turn++) {
    await new Promise((resolve) => setTimeout(resolve));
    collectGarbage();
  }
  expect({ asked: asked.length, kept: kept() }).toEqual({ asked: 3, kept: 0 });
  expect((await call(server, "get_result", { call_id: "a" })).result.results[0].output).toBe(1);
});

it("two callers that stop waiting together start one timer, which the next request stops", async () => {
  const { server, ran, callId } = await gated({ abandonAfterS: 0.2 });
  let aborted = false;
  ran.aborted.opened.then(() => {
    aborted = true;
  });
  const meta = { call_id: callId, wait_s: 0.02 };
  await Promise.all([1, 2].map(() => call(server, "evaluate", one, meta)));
  call(server, "get_result", { call_id: callId, wait_s: 0.3 }); // it stops waiting before the other one
  expect((await call(server, "get_result", { call_id: callId, wait_s: 0.6 })).result.pending).toBeDefined();
  expect(aborted).toBe(false);
});
