import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { cpSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type ServiceClient, serviceClient } from "../src/index.js";

const ROOT = resolve(import.meta.dirname, "../../..");
const WAIT_MS = 300_000;
const folder = mkdtempSync(join(tmpdir(), "gepa-service-story-"));
let service: ChildProcess;
let client: ServiceClient;

beforeAll(async () => {
  const flags = ["service", "up", "--data", join(folder, "data"), "--port", "0", "--sandbox", "process", "--json"];
  service = spawn(join(ROOT, ".venv/bin/evolverpc"), flags, { stdio: ["ignore", "pipe", "inherit"] });
  if (service.stdout === null) throw new Error("no pipe");
  for await (const line of createInterface(service.stdout)) {
    const { url, key } = JSON.parse(line) as { url: string; key: string };
    client = serviceClient({ url, key });
    break;
  }
}, WAIT_MS);

afterAll(async () => {
  service.kill("SIGTERM");
  if (service.exitCode === null) await new Promise((done) => service.once("exit", done));
  rmSync(folder, { recursive: true });
}, WAIT_MS);

function repository(): string {
  const made = join(folder, "program");
  cpSync(join(ROOT, "examples/tickets/python"), made, { recursive: true });
  cpSync(join(ROOT, "examples/tickets/data"), join(made, "data"), { recursive: true });
  const identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"];
  for (const words of [
    ["init", "--quiet"],
    ["add", "--all"],
    [...identity, "commit", "--quiet", "-m", "Add it"],
  ])
    execFileSync("git", words, { cwd: made });
  return made;
}

test("a program is connected, optimized, followed and promoted", { timeout: WAIT_MS }, async () => {
  const connected = await client.POST("/connect-git", { body: { repo_url: repository() } });
  expect(connected.error).toBeUndefined();
  const submitted = await client.POST("/optimize", {
    body: {
      client_id: connected.data?.client_id ?? "",
      trainset_path: "data/train.jsonl",
      valset_path: "data/val.jsonl",
      testset_path: "data/test.jsonl",
      max_metric_calls: 832,
      options: { reflection_minibatch_size: 40, candidate_selection_strategy: "current_best" },
    },
  });
  const jobId = submitted.data?.job_id ?? "";
  const types = new Set<string>();
  for await (const event of client.follow(jobId)) types.add(event.event);
  expect([...types]).toEqual(expect.arrayContaining(["job", "run", "results", "candidate"]));
  const job = await client.GET("/job/{job_id}", { params: { path: { job_id: jobId } } });
  expect(job.data?.status).toBe("completed");
  const programId = job.data?.program_id ?? "";
  const promoted = await client.POST("/program/{program_id}/promote", {
    params: { path: { program_id: programId } },
    body: {},
  });
  expect(promoted.data?.program_id).toBe(programId);
  const active = await client.GET("/programs/active");
  expect(active.data?.items.map((each) => each.program_id)).toEqual([programId]);
  const absent = await client.GET("/job/{job_id}", { params: { path: { job_id: "job_absent" } } });
  expect(absent.error).toMatchObject({ type: "urn:evolverpc:not-found", status: 404 });
});
