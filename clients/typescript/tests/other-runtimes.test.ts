// Outside of Node.js the calls of an example are those of the global `fetch`.
import { createServer } from "node:http";
import { gzipSync } from "node:zlib";
import { expect, it, onTestFinished, vi } from "vitest";
import { answerOf, hostOf, programOf } from "./support.js";

const FAILED = JSON.stringify({ error: { type: "overloaded_error", message: "Overloaded" } });
/** Status, content encoding and body of the answers, by name. */
const ANSWERS: Record<string, readonly [status: number, encoding: string, body: string | Uint8Array]> = {
  busy: [429, "identity", "{}"],
  "an error": [200, "identity", FAILED],
  "a compressed error": [200, "gzip", gzipSync(FAILED)],
  "an answer": [200, "identity", '{"choices": []}'],
};

it("an example that returned is judged by its calls of models in a runtime other than Node.js", async () => {
  const server = createServer((request, response) => {
    const [status = 500, encoding = "", body = ""] = ANSWERS[decodeURIComponent(request.url ?? "").slice(1)] ?? [];
    response.writeHead(status, { "content-type": "application/json", "content-encoding": encoding }).end(body);
  });
  const host = await hostOf(server);
  vi.resetModules();
  vi.stubGlobal("Bun", {});
  vi.stubGlobal("fetch", fetch); // the package replaces it by one that is watched
  onTestFinished(() => {
    vi.unstubAllGlobals();
    vi.resetModules();
    server.closeAllConnections();
    server.close();
  });
  const web = await import("../src/web.js");
  const run = async (how: string) => (await fetch(`http://${host}/${how}`)).text();
  const handle = web.handler(programOf({ run }), { token: "secret", modelHosts: [host] });
  const batch = Object.keys(ANSWERS).map((how) => ({ id: how, data: how }));
  const { result } = await answerOf(handle, "evaluate", { candidate: { rules: "" }, batch });
  const statuses = result.results.map(({ status }: { status: string }) => status);
  expect(statuses).toEqual(["infra_error", "infra_error", "infra_error", "ok"]);
});
