import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it, onTestFinished, vi } from "vitest";
import { Cancellation } from "../src/base/cancellation.js";
import { Calls } from "../src/server/calls.js";
import { type RunningServer, serve } from "../src/server/serve.js";
import { nextMessage, started } from "./processes.js";
import { batchProgramOf, call, gate, ONE, programOf, raw, served, temporaryFolder } from "./support.js";

const quiet = { announce: () => {}, ownsProcess: false };

function silenced() {
  const log = vi.spyOn(console, "error").mockImplementation(() => {});
  onTestFinished(() => log.mockRestore());
  return log;
}

it("a random token is in a file that only its owner reads, gone when the server is", async () => {
  let line = "";
  const server = await serve(programOf(), { ...quiet, announce: (printed) => (line = printed) });
  const file = line.match(/^evolverpc \S+ · test \(typescript\) ready on (\S+) · token in (\S+)$/);
  expect(file?.[1]).toBe(server.url);
  expect(readFileSync(file?.[2] ?? "", "utf8").trim()).toBe(server.token);
  expect(statSync(file?.[2] ?? "").mode & 0o777).toBe(0o600);
  await server.close();
  expect(existsSync(file?.[2] ?? "")).toBe(false);
});

it("a new token file that a .gitignore includes is refused with the reason, and is not left there", async () => {
  const top = temporaryFolder();
  execFileSync("git", ["init", "--quiet"], { cwd: top });
  writeFileSync(join(top, ".gitignore"), "*\n!token\n");
  const tokenFile = join(top, "token");
  await expect(served(programOf(), { tokenFile })).rejects.toThrow("a .gitignore that begins with ! includes token");
  expect(existsSync(tokenFile)).toBe(false);
});

it("a new token file in a git repository is ignored by git, and a file that exists is left to the user", async () => {
  const log = silenced();
  const top = temporaryFolder();
  const git = (...words: string[]) => execFileSync("git", words, { cwd: top, encoding: "utf8" });
  git("init", "--quiet");
  mkdirSync(join(top, "a [b]"));
  const tokenFile = join(top, "a [b]", "to ken*");
  await served(programOf(), { tokenFile });
  expect(git("status", "--short", "--untracked-files=all")).toBe("");
  const exclude = join(top, ".git", "info", "exclude");
  expect(log.mock.calls).toEqual([
    [
      expect.stringMatching(
        /the new token file .*to ken\* is in a git repository: a line in .*exclude makes git ignore it/,
      ),
    ],
  ]);
  const lines = readFileSync(exclude, "utf8");
  await served(programOf(), { tokenFile });
  writeFileSync(join(top, "own"), "token\n");
  await served(programOf(), { tokenFile: join(top, "own") });
  expect(readFileSync(exclude, "utf8")).toBe(lines);

  rmSync(join(top, ".git", "info"), { recursive: true });
  writeFileSync(join(top, ".git", "info"), "no folder");
  const other = join(top, "other");
  await expect(serve(programOf(), { ...quiet, tokenFile: other })).rejects.toThrow(
    "is in a git repository and would be",
  );
  expect(existsSync(other)).toBe(false);
});

it.each([
  ["runs without scoring", programOf({ score: undefined as never }), 1],
  ["scores", programOf(), 0],
  ["evaluates batches", batchProgramOf({ score: undefined as never }), 0],
  ["only scores", { name: "judge", score: () => 1 }, 0],
])("a program that %s: a warning names the two remedies if scores are missing", async (_, program, warnings) => {
  const log = silenced();
  await served(program);
  expect(log).toHaveBeenCalledTimes(warnings);
  for (const [line] of log.mock.calls) expect(line).toMatch(/no `score\(example, output\)`: .* --score-with URL`$/);
});

it("a given token comes from a file or the environment, and is not printed", async () => {
  const tokenFile = join(temporaryFolder(), "token");
  writeFileSync(tokenFile, "from-the-file\n");
  process.env.GEPA_TOKEN = "left-aside";
  expect((await served(programOf(), { tokenFile })).token).toBe("from-the-file");

  process.env.GEPA_TOKEN = "from-the-environment";
  let line = "";
  const server = await served(programOf(), { json: true, announce: (printed) => (line = printed) });
  expect(server.token).toBe("from-the-environment");
  expect(process.env.GEPA_TOKEN).toBeUndefined();
  expect(JSON.parse(line)).toEqual({
    event: "ready",
    url: server.url,
    token: null,
    token_file: null,
    instance_id: server.instanceId,
    pid: process.pid,
  });
});

it("a missing token file is created for its owner only, and a later start has the same token", async () => {
  const tokenFile = join(temporaryFolder(), "token");
  const first = await served(programOf(), { tokenFile });
  expect(readFileSync(tokenFile, "utf8")).toBe(`${first.token}\n`);
  expect(statSync(tokenFile).mode & 0o777).toBe(0o600);
  await first.close();
  expect((await served(programOf(), { tokenFile })).token).toBe(first.token);
});

it("processes that start at the same time share the token of a new file", async () => {
  const folder = temporaryFolder();
  const children = [1, 2].map(() => started("tests/programs/token-files.ts", [folder, "100"]));
  for (const child of children) expect((await child.lines.next()).value).toBe("ready");
  for (const child of children) child.process.stdin.write("go");
  const [first, second] = await Promise.all(children.map(async (child) => (await child.lines.next()).value));
  expect(JSON.parse(first).length).toBe(100);
  expect(second).toBe(first);
  expect(readdirSync(folder).filter((name) => name.startsWith("."))).toEqual([]);
});

it("a drain finishes running work, refuses new work, and waits until answers are collected", async () => {
  const { opened, open } = gate();
  const server = await served(programOf({ run: () => opened }), { drainS: 1e9 });
  await call(server, "evaluate", ONE, { call_id: "a", wait_s: 0 });
  let drained = false;
  const drain = server.drain().then(() => {
    drained = true;
  });
  expect((await raw(server, { path: "/health", method: "GET" })).status).toBe(503);
  expect((await call(server, "evaluate", ONE)).error).toMatchObject({ code: -32030, data: { retry_after_s: 1 } });
  expect((await call(server, "discover")).result).toBeDefined();
  expect((await call(server, "evaluate", ONE, { call_id: "a", wait_s: 0 })).result.pending).toBeDefined();
  open();
  expect(drained).toBe(false);
  expect((await call(server, "get_result", { call_id: "a", wait_s: 10 })).result.results[0].status).toBe("ok");
  await drain;
  await expect(call(server, "discover")).rejects.toThrow();
});

it("a drain waits for an answer that was asked for by callers that were gone", async () => {
  const calls = new Calls({ abandonAfterS: 9, keepAnswersS: 9, maxAnswerBytes: 9 });
  const [gone, here] = [new Cancellation(), new Cancellation()];
  gone.cancel();
  const job = () => ({ progress: { done: 0, total: 1 }, run: async () => 1 });
  const ask = (listener: Cancellation) =>
    calls.ask("a", Promise.resolve("digest"), job, { waitS: 9, listener, log: () => {} });
  await ask(gone);
  await new Promise(setImmediate); // it has ended
  await ask(gone);
  expect(calls.outstanding).toBe(true);
  await ask(here);
  expect(calls.outstanding).toBe(false);
});

it("a drain does not wait longer than its limit", async () => {
  const server = await served(programOf({ run: () => new Promise(() => {}) }), { drainS: 0.05 });
  await call(server, "evaluate", ONE, { call_id: "a", wait_s: 0 });
  await server.drain();
});

it("a drain does not wait for cancelled calls to be collected", async () => {
  const server = await served(programOf({ run: () => new Promise(() => {}) }), { drainS: 600 });
  await call(server, "evaluate", ONE, { call_id: "a", wait_s: 0 });
  const drained = server.drain();
  expect((await call(server, "cancel", { call_id: "a" })).result).toEqual({ status: "cancelled" });
  await drained;
});

it("a server process announces itself in JSON, drains on SIGTERM and exits", async () => {
  const child = started("src/bin/conformance.ts", ["--json", "--drain-s", "10"], { GEPA_TOKEN: "t" });
  const ready = await nextMessage(child);
  expect(ready).toMatchObject({ event: "ready", token: null, pid: child.process.pid });
  const server = { url: ready.url, token: "t" } as RunningServer;
  const batch = [{ id: "a", data: { sleep_ms: 300, output: "finished" } }];
  const params = { candidate: { system: "a", style: "b" }, batch };
  await call(server, "evaluate", params, { call_id: "a", wait_s: 0 });
  child.process.kill("SIGTERM");
  let health = 200;
  while (health === 200) health = (await raw(server, { path: "/health", method: "GET" })).status;
  expect(health).toBe(503);
  const { result } = await call(server, "get_result", { call_id: "a", wait_s: 10 });
  expect(result.results[0].output).toBe("finished");
  expect(await child.ended).toBe(0);
});

it("Ctrl-C ends a server process with its status, and the file of its token is gone", async () => {
  const child = started("tests/programs/careless.ts");
  const ready = await nextMessage(child);
  expect(existsSync(ready.token_file)).toBe(true);
  child.process.kill("SIGINT");
  expect(await child.ended).toBe(130);
  expect(existsSync(ready.token_file)).toBe(false);
});

it("an unhandled rejection in the program does not end the server", async () => {
  const child = started("tests/programs/careless.ts");
  const server = (await nextMessage(child)) as RunningServer;
  expect((await call(server, "evaluate", ONE)).result.results[0].status).toBe("ok");
  expect((await call(server, "evaluate", ONE)).result.results[0].status).toBe("ok");
  await child.complained("left alone");
});
