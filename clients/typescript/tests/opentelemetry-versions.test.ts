// Spans are steps with the oldest and the newest version of OpenTelemetry's API, however a program loads it.
import { execFile } from "node:child_process";
import { cpSync, mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, expect, it } from "vitest";
import { compiled } from "./processes.js";

const IMPORTED = 'import { trace } from "@opentelemetry/api";';
const REQUIRED =
  'import { createRequire } from "node:module"; const { trace } = createRequire(import.meta.url)("@opentelemetry/api");';
const PROGRAM = `
import { serve } from "${compiled("src/server/serve.ts")}";
const program = { name: "p", seedCandidate: { a: "Answer." }, score: () => 1, run: () => trace.getTracer("ai")
  .startActiveSpan("chat", { attributes: { "gen_ai.operation.name": "chat", "evolverpc.component": "a" } }, (span) => { span.end(); return ""; }) };
const log = [];
const server = await serve(program, { announce: () => {}, log: (message) => log.push(message) });
const batch = [1, 2].map((data) => ({ id: String(data), data }));
const params = { candidate: program.seedCandidate, batch, capture_traces: true };
const headers = { authorization: "Bearer " + server.token, "content-type": "application/json" };
const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "evaluate", params });
const { result } = await (await fetch(new URL("/rpc", server.url), { method: "POST", headers, body })).json();
await server.close();
console.log(JSON.stringify({ steps: result.results.map(({ status, trajectory }) => status === "ok" ? trajectory?.steps?.length ?? 0 : status), log }));
`;

const FOLDERS = mkdtempSync(join(tmpdir(), "evolverpc-api-"));

afterAll(() => rmSync(FOLDERS, { recursive: true }));

/** How many steps two examples of a program have that make one span each, and its log; `change`: of the installed API. */
async function ran(api: string, load: string, change = (_folder: string): void => {}) {
  const folder = mkdtempSync(join(FOLDERS, "program-"));
  const installed = join(folder, "node_modules", "@opentelemetry", "api");
  cpSync(fileURLToPath(new URL(`../node_modules/${api}`, import.meta.url)), installed, { recursive: true });
  change(installed);
  const script = join(folder, "program.mjs");
  writeFileSync(script, load + PROGRAM);
  const { stdout } = await promisify(execFile)(process.execPath, [script]);
  return JSON.parse(stdout);
}

it.concurrent.each([
  ["opentelemetry-api-1.0", IMPORTED],
  ["opentelemetry-api-1.10", IMPORTED],
  ["opentelemetry-api-1.10", REQUIRED],
])("spans are steps without a tracer provider, with %s and `%s`", async (api, load) => {
  expect(await ran(api, load)).toEqual({ steps: [1, 1], log: [] });
});

it("a build of the API that is not known is reported once", async () => {
  const { steps, log } = await ran("opentelemetry-api-1.10", IMPORTED, (folder) => {
    renameSync(join(folder, "dist"), join(folder, "lib"));
    const file = join(folder, "package.json");
    writeFileSync(file, JSON.stringify({ name: "@opentelemetry/api", exports: "./lib/index.mjs" }));
  });
  expect(steps).toEqual([0, 0]);
  expect(log).toEqual([expect.stringMatching(/OpenTelemetry's API is loaded from .*\/lib\/.*set a tracer provider/)]);
});

it("an API whose files are deleted after it was loaded is reported once, and no example fails", async () => {
  const deleted =
    'import { rmSync } from "node:fs"; rmSync(new URL("node_modules", import.meta.url), { recursive: true });';
  const { steps, log } = await ran("opentelemetry-api-1.10", IMPORTED + deleted);
  expect(steps).toEqual([0, 0]);
  expect(log).toEqual([
    expect.stringMatching(/cannot be imported again .*ERR_MODULE_NOT_FOUND.*set a tracer provider/),
  ]);
});
