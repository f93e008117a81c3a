import { createServer } from "node:http";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { RpcError } from "../src/base/rpc-error.js";
import { BadResponse, ConnectionLost, Refused, RpcClient } from "../src/client/client.js";
import { CallNotFound, MutationRejected, Unauthorized, UnknownCandidate } from "../src/generated/errors.js";
import { gate, hostOf, ONE, programOf, served } from "./support.js";

const candidate = { git_branch: `main@${"a".repeat(40)}`, added_components: "{}" };

/** A client of a server that answers every request so. */
async function answering(status: number, body: string, headers: Record<string, string> = {}): Promise<RpcClient> {
  const server = createServer((_, response) => response.writeHead(status, headers).end(body));
  const host = await hostOf(server);
  onTestFinished(() => new Promise((resolve) => server.close(() => resolve(undefined))));
  onTestFinished(() => server.closeAllConnections());
  return new RpcClient(`http://${host}`, { token: "t", maxResponseBytes: 1000 });
}

describe("a call", () => {
  it("returns the result of its method, typed", async () => {
    const server = await served(programOf());
    const client = new RpcClient(server.url, { token: server.token });
    expect((await client.discover()).program.name).toBe("test");
    const { results } = await client.evaluate(ONE);
    expect(results[0]?.output).toBe("x");
    expect(await client.call("cancel", { call_id: "a" }).catch((error: unknown) => error)).toBeInstanceOf(CallNotFound);
  });

  it("throws the class of the error code, with its details", async () => {
    const server = await served(programOf());
    const client = new RpcClient(server.url.replace("/rpc", ""), { token: server.token });
    const error = await client.call("evaluate", { ...ONE, candidate: { colour: "" } }).catch((thrown) => thrown);
    expect(error).toBeInstanceOf(UnknownCandidate);
    expect(error).toMatchObject({
      code: -32022,
      retryable: false,
      details: { unknown: ["colour"], missing: ["rules"] },
    });
    await expect(new RpcClient(server.url, { token: "wrong" }).discover()).rejects.toBeInstanceOf(Unauthorized);
  });

  it("can be a mutation, whose commit is typed and can be imported elsewhere", async () => {
    const made = { candidate, commit: "b", parent: "a", diff: "", files: [], summary: "", bundle: "IyB2Mg==" };
    const client = await answering(200, JSON.stringify({ jsonrpc: "2.0", id: 1, result: made }));
    const name = { run: "r1", number: 8 };
    const { bundle } = await client.call("apply_mutation", { candidate, mutation: { kind: "patch", diff: "x" }, name });
    const other = await answering(200, '{"jsonrpc":"2.0","id":1,"result":{"commits":["b"]}}');
    expect((await other.call("import_commits", { bundles: [bundle ?? ""] })).commits).toEqual(["b"]);
    const third = await answering(200, '{"jsonrpc":"2.0","id":1,"result":{"outline":"words.py"}}');
    expect((await third.call("outline_code", { candidate })).outline).toBe("words.py");
  });

  it("is not repeated once its signal is aborted", async () => {
    const server = await served(programOf());
    const controller = new AbortController();
    let sent = 0;
    const leaving = (url: string, init: RequestInit): Promise<Response> => {
      if (!String(init.body).includes('"evaluate"')) return fetch(url, init);
      sent++;
      controller.abort();
      return Promise.reject(new TypeError("fetch failed"));
    };
    const client = new RpcClient(server.url, { token: server.token, fetch: leaving });
    await expect(client.evaluate(ONE, { signal: controller.signal })).rejects.toBeInstanceOf(ConnectionLost);
    expect(sent).toBe(1);
  });

  it("throws the reason for which a mutation was refused", async () => {
    const error = { code: -32026, message: "m", data: { retryable: false, stage: "check", reason: "2 tests failed" } };
    const client = await answering(200, JSON.stringify({ jsonrpc: "2.0", id: 1, error }));
    const refused = client.call("apply_mutation", { candidate, mutation: { kind: "merge", other: candidate } });
    await expect(refused).rejects.toBeInstanceOf(MutationRejected);
    await expect(refused).rejects.toMatchObject({ details: { stage: "check", reason: "2 tests failed" } });
  });

  it("has a deadline, after which its outcome is unknown", async () => {
    const server = await served(programOf({ run: () => new Promise(() => {}) }));
    const client = new RpcClient(server.url, { token: server.token });
    await expect(client.call("evaluate", ONE, { timeoutS: 0.05 })).rejects.toBeInstanceOf(ConnectionLost);
  });

  it("may be pending, and is collected", async () => {
    const { opened, open } = gate();
    const server = await served(programOf({ run: () => opened }));
    const impatient = async (url: string, { body, ...init }: RequestInit): Promise<Response> => {
      const response = await fetch(url, { ...init, body: String(body).replace(/"wait_s":\d+/, '"wait_s":0') });
      if ((await response.clone().text()).includes('"pending"')) open();
      return response;
    };
    const client = new RpcClient(server.url, { token: server.token, fetch: impatient });
    expect((await client.evaluate(ONE)).results[0]?.status).toBe("ok");
  });

  it("runs once with an id of the caller, and a group has its trajectories kept", async () => {
    let ran = 0;
    const run = (data: unknown, _: unknown, { trace }: any) => trace.push(data) + ran++;
    const server = await served(programOf({ run }));
    const client = new RpcClient(server.url, { token: server.token });
    const options = { callId: "mine", group: "first" };
    const [first, second] = [1, 2].map(() => client.evaluate({ ...ONE, capture_traces: true }, options));
    expect((await first)?.results[0]?.trajectory_ref).toEqual(expect.any(String));
    expect(await second).toEqual(await first);
    expect(ran).toBe(1);
  });

  it("is repeated with the same id when the connection is lost", async () => {
    let ran = 0;
    const server = await served(programOf({ run: () => ++ran }));
    let lost = 0;
    const unreliable = async (url: string, init: RequestInit): Promise<Response> => {
      const response = await fetch(url, init);
      if (String(init.body).includes("evaluate") && lost++ < 2) throw new TypeError("fetch failed");
      return response;
    };
    const client = new RpcClient(server.url, { token: server.token, fetch: unreliable });
    expect((await client.evaluate(ONE)).results[0]?.status).toBe("ok");
    expect(ran).toBe(1);
  });
});

describe("a client", () => {
  it("sends no token over plain http to another machine, nor one from a URL", () => {
    expect(() => new RpcClient("http://example.com", { token: "t" })).toThrow(Refused);
    expect(() => new RpcClient("https://user:t@example.com", { token: "t" })).toThrow(Refused);
    expect(() => new RpcClient("ftp://example.com", { token: "t" })).toThrow(Refused);
    expect(new RpcClient("https://example.com/", { token: "t" }).url).toBe("https://example.com/rpc");
    expect(new RpcClient("http://example.com", { token: "t", allowInsecure: true }).url).toBe("http://example.com/rpc");
    expect(() => new RpcClient("https://example.com")).toThrow(/token/);
    vi.stubEnv("GEPA_TOKEN", "of-the-environment");
    onTestFinished(() => void vi.unstubAllEnvs());
    expect(new RpcClient("https://example.com").url).toBe("https://example.com/rpc");
  });

  it.each([
    ["a redirect", 302, "", BadResponse],
    ["a page", 200, "<html>", BadResponse],
    ["too long an answer", 200, " ".repeat(2000), BadResponse],
    ["a proxy's time-out", 504, "<html>", ConnectionLost],
    ["another request's answer", 200, '{"jsonrpc":"2.0","id":99,"result":{}}', BadResponse],
    ["a result that breaks the contract", 200, '{"jsonrpc":"2.0","id":1,"result":{"server":{}}}', BadResponse],
    ["neither result nor error", 200, '{"jsonrpc":"2.0","id":1}', BadResponse],
    ["an error with an unknown code", 200, '{"jsonrpc":"2.0","id":1,"error":{"code":7,"message":"m"}}', RpcError],
  ])("recognises %s", async (_, status, body, kind) => {
    const client = await answering(status, body, { location: "http://127.0.0.1:1/rpc" });
    await expect(client.discover()).rejects.toBeInstanceOf(kind);
  });
});
