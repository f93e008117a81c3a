import { expect, it } from "vitest";
import { type Child, nextMessage, started } from "./processes.js";

function send(child: Child, ...messages: unknown[]): void {
  for (const message of messages)
    child.process.stdin.write(`${typeof message === "string" ? message : JSON.stringify(message)}\n`);
}

function evaluation(id: number, data: object, meta: object = {}): object {
  const params = { candidate: { rules: "" }, batch: [{ id: "a", data }], _meta: meta };
  return { jsonrpc: "2.0", id, method: "evaluate", params };
}

it("answers on a standard output that carries nothing else, and exits when its input ends", async () => {
  const child = started("tests/programs/chatty.ts");
  send(child, { jsonrpc: "2.0", id: 1, method: "discover" });
  expect(await child.lines.next()).toMatchObject({ value: "while it is imported" }); // before it served, like any log text
  const { result } = await nextMessage(child);
  expect(result.capabilities).toEqual(["cancel", "scoring", "steps", "exact_values", "openrpc"]);
  expect(result.limits).toMatchObject({ max_concurrency: 3 });
  expect(result.limits).not.toHaveProperty("example_timeout_s");
  send(child, evaluation(2, { print: "to be kept apart" }));
  expect(await nextMessage(child)).toMatchObject({
    id: 2,
    result: { results: [{ status: "ok", output: "to be kept apart" }] },
  });
  child.process.stdin.end();
  expect(await child.ended).toBe(0);
  expect(child.stderr().split("to be kept apart")).toHaveLength(4);
});

it("answers out of order, and cancels by `call_id`", async () => {
  const child = started("tests/programs/chatty.ts");
  await child.lines.next();
  send(child, evaluation(1, { hang: true }, { call_id: "c" }), evaluation(2, {}));
  expect((await nextMessage(child)).id).toBe(2);
  send(child, { jsonrpc: "2.0", id: 3, method: "cancel", params: { call_id: "c" } });
  const answers = [await nextMessage(child), await nextMessage(child)].sort((left, right) => left.id - right.id);
  expect(answers).toMatchObject([
    { id: 1, result: { results: [{ status: "cancelled", score: null }] } },
    { id: 3, result: { status: "cancelled" } },
  ]);
});

it("refuses bad lines and continues; blank lines are ignored", async () => {
  const child = started("tests/programs/chatty.ts");
  await child.lines.next();
  send(child, "{", "", "  \r", [], "x".repeat(200_000), { jsonrpc: "2.0", id: 1, method: 5 });
  const codes = [];
  for (let at = 0; at < 4; at++) codes.push((await nextMessage(child)).error.code);
  expect(codes.sort()).toEqual([-32600, -32600, -32700, -32031].sort());
  send(child, evaluation(9, {}));
  expect((await nextMessage(child)).id).toBe(9);
});

it("exits on SIGTERM even while work runs", async () => {
  const child = started("tests/programs/chatty.ts");
  await child.lines.next();
  send(child, evaluation(1, { hang: true }), evaluation(2, {}));
  await nextMessage(child);
  child.process.kill("SIGTERM");
  expect(await child.ended).toBe(0);
});
