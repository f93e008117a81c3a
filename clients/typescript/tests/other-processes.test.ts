// A call outlives the process that made it: another process with the same id and params collects it.
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { expect, it } from "vitest";
import type { RunningServer } from "../src/server/serve.js";
import { gate, programOf, served } from "./support.js";

const CALL_ID = "20261120-171700-3fa9-tickets/120/1";
const ASK = `
const [url, token, method, params] = process.argv.slice(1);
const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method, params: JSON.parse(params) });
const headers = { authorization: "Bearer " + token, "content-type": "application/json" };
console.log(await (await fetch(url, { method: "POST", headers, body })).text());
`;

/** A process of its own that asks once; its answer's result. */
function asking(server: RunningServer, method: string, params: object) {
  const given = [server.url, server.token, method, JSON.stringify(params)];
  const run = promisify(execFile)(process.execPath, ["--input-type=module", "-e", ASK, "--", ...given]);
  return { process: run.child, result: run.then(({ stdout }) => JSON.parse(stdout).result) };
}

const evaluation = (meta: object = {}) => ({
  candidate: { rules: "" },
  batch: [{ id: "7", data: "x" }],
  capture_traces: true,
  _meta: { call_id: CALL_ID, ...meta },
});

it("a finished answer is collected by another process, and nothing runs twice", async () => {
  let times = 0;
  const server = await served(programOf({ run: () => ++times }));
  const first = await asking(server, "evaluate", evaluation()).result;
  expect(first.results[0]).toMatchObject({ status: "ok", output: 1 });
  expect(await asking(server, "evaluate", evaluation()).result).toEqual(first);
  expect(await asking(server, "get_result", { call_id: CALL_ID }).result).toEqual(first);
  expect(times).toBe(1);
});

it("a call of a killed process continues and is collected", async () => {
  let times = 0;
  const begun = gate();
  const { opened, open } = gate();
  const run = () => {
    times++;
    begun.open();
    return opened;
  };
  const server = await served(programOf({ run }));
  const first = asking(server, "evaluate", evaluation());
  const killed = expect(first.result).rejects.toThrow();
  await begun.opened;
  first.process.kill("SIGKILL");
  await killed;
  const second = asking(server, "evaluate", evaluation());
  open();
  expect((await second.result).results[0].status).toBe("ok");
  expect(times).toBe(1);
});

it("a group keeps its trajectories for another process", async () => {
  const run = (_: unknown, __: unknown, { trace }: { trace: unknown[] }) => trace.push("looked");
  const server = await served(programOf({ run }));
  const asked = evaluation({ group: "20261120-171700-3fa9-tickets/120" });
  const { results } = await asking(server, "evaluate", asked).result;
  const { traces } = await asking(server, "get_traces", { refs: [results[0].trajectory_ref] }).result;
  expect(traces).toEqual([{ trajectory: ["looked"] }]);
});
