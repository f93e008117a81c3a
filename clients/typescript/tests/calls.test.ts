import { randomUUID } from "node:crypto";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, it } from "vitest";
import type { ServeOptions } from "../src/server/serve.js";
import { call, gate, ONE, programOf, served } from "./support.js";

/** A server whose examples wait for `open`. */
async function gated(options: ServeOptions = {}) {
  const { opened, open } = gate();
  const aborted = gate();
  const server = await served(
    programOf({
      run: (data, _, { signal }) => {
        signal.addEventListener("abort", () => aborted.open());
        return opened.then(() => data);
      },
      proposeNewTexts: async () => {
        await opened;
        return {};
      },
    }),
    options,
  );
  return { server, open, aborted, callId: randomUUID() };
}

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

it("an example that is cancelled has what it cost until then", async () => {
  const begun = gate();
  const run = (_: unknown, __: unknown, { usage }: any) => {
    usage.calls = 2;
    begun.open();
    return new Promise(() => {});
  };
  const server = await served(programOf({ run }));
  await call(server, "evaluate", ONE, { call_id: "c", wait_s: 0 });
  await begun.opened;
  await call(server, "cancel", { call_id: "c" });
  const { result } = await call(server, "get_result", { call_id: "c" });
  expect(result.results).toMatchObject([{ status: "cancelled", usage: { calls: 2 } }]);
});

it("answers are evicted when they are too many", async () => {
  const small = await gated({ maxAnswerBytes: 3000 });
  small.open();
  for (const id of ["first", "second", "third"]) await call(small.server, "evaluate", ONE, { call_id: id });
  expect((await call(small.server, "get_result", { call_id: "first" })).error.code).toBe(-32028);
  await call(small.server, "get_result", { call_id: "second" });
  await call(small.server, "evaluate", ONE, { call_id: "fourth" });
  expect((await call(small.server, "get_result", { call_id: "third" })).error.code).toBe(-32028);
  expect((await call(small.server, "get_result", { call_id: "second" })).result).toBeDefined();

  const least = await gated({ maxAnswerBytes: 1 });
  least.open();
  await call(least.server, "evaluate", ONE, { call_id: "newest" });
  expect((await call(least.server, "get_result", { call_id: "newest" })).result).toBeDefined();
});

it("a call whose `wait_s` is null is answered when it has ended", async () => {
  const { server, open, callId } = await gated();
  const asked = call(server, "evaluate", ONE, { call_id: callId, wait_s: null });
  setTimeout(open, 50);
  expect((await asked).result.results).toHaveLength(1);
});

it("a stored answer does not keep its request in memory", async () => {
  setFlagsFromString("--expose-gc");
  const collectGarbage: () => void = runInNewContext("gc");
  const asked: WeakRef<object>[] = [];
  const server = await served(programOf({ run: (data) => asked.push(new WeakRef(data)) }));
  for (const id of ["a", "b", "c"]) {
    await call(server, "evaluate", { ...ONE, batch: [{ id, data: { id } }] }, { call_id: id, wait_s: 10 });
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
  const { server, aborted, callId } = await gated({ abandonAfterS: 0.2 });
  let isAborted = false;
  aborted.opened.then(() => {
    isAborted = true;
  });
  const meta = { call_id: callId, wait_s: 0.02 };
  await Promise.all([1, 2].map(() => call(server, "evaluate", ONE, meta)));
  call(server, "get_result", { call_id: callId, wait_s: 0.3 }); // it stops waiting before the other one
  expect((await call(server, "get_result", { call_id: callId, wait_s: 0.6 })).result.pending).toBeDefined();
  expect(isAborted).toBe(false);
});
