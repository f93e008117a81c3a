import { execFile, execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished, vi } from "vitest";
import { OptimizeError, optimize, type RunEvent } from "../src/index.js";
import { readResult } from "../src/optimize/optimize-result.js";
import { compiled, nextMessage, started, startedNode } from "./processes.js";
import { given } from "./programs/optimizing.js";
import { served } from "./support.js";

const REPOSITORY = fileURLToPath(new URL("../../..", import.meta.url));
const INSTALLED = process.env.GEPA_CLIENT ?? "";
/** A folder with an optimizer whose processes are forks of one that has imported it. */
let forked: string;
let folder: string;

vi.setConfig({ testTimeout: 60_000 }); // each starts the optimizer, some of them three times

beforeAll(() => {
  forked = mkdtempSync(join(tmpdir(), "evolverpc-forked-"));
  const python = join(dirname(INSTALLED), "python");
  execFileSync(python, ["-m", "tests.support.forked_commands", forked], { cwd: REPOSITORY, stdio: "inherit" });
  process.env.GEPA_CLIENT = join(forked, "evolverpc");
});

afterAll(() => {
  process.env.GEPA_CLIENT = INSTALLED;
  rmSync(forked, { recursive: true });
});

beforeEach(() => {
  delete process.env.GEPA_TOKEN; // an isolated program's server refuses an empty one
  folder = mkdtempSync(join(tmpdir(), "evolverpc-optimize-"));
  // The driver of an optimizer that was killed writes until it notices.
  onTestFinished(() => rm(folder, { recursive: true, maxRetries: 10, retryDelay: 100 }));
});

const here = () => ({ store: join(folder, "runs.db"), output: join(folder, "run") });
const failure = (promise: Promise<unknown>): Promise<any> =>
  promise.then(
    () => undefined,
    (error) => error,
  );

it("returns the best candidate, its scores and the run's files; options have precedence over variables", async () => {
  vi.stubEnv("GEPA_MAX_METRIC_CALLS", "1");
  vi.stubEnv("GEPA_REFLECTION_LM", "openai/gpt-5");
  vi.stubEnv("GEPA_TRAINSET", "none.jsonl");
  vi.stubEnv("GEPA_TOKEN_FILE", "none");
  onTestFinished(() => void vi.unstubAllEnvs());
  const events: RunEvent[] = [];
  const program = { ...given.program, datasets: { train: given.valset } };
  const onEvent = (event: RunEvent) => events.push(event);
  const result = await optimize({ ...given, program, ...here(), optimizer: INSTALLED, onEvent });
  expect(result).toMatchObject({
    seedScore: 0.5,
    bestScore: 1,
    seedTestScore: 0.5,
    testScore: 1,
    verdict: "no difference",
  });
  expect(result.bestCandidate.words?.split(" ").sort()).toEqual(["bill", "nothing", "tax"]);
  expect(result.candidates.map(({ parents }) => parents)).toEqual([[], [0], [1]]);
  expect(result.candidates[2]).toMatchObject({ texts: result.bestCandidate, score: 1 });
  expect(Object.entries(result.candidates[0]?.valScores ?? {})).toHaveLength(8);
  expect(Object.values(result.files).map(existsSync)).toEqual([true, true, true, true, true]);
  expect(result.output).toBe(join(folder, "run"));
  expect(result).toMatchObject({ status: "completed", spentUsd: 0, seconds: expect.any(Number) });
  const begun = events.find((event) => event.event === "started");
  expect(begun).toMatchObject({ run_id: result.runId, splits: { train: 20, val: 8, test: 8 } });
  expect(events.at(-1)).toMatchObject({ event: "finished", status: "completed" });
});

it("finds the candidates that the command finds with the same seed", async () => {
  const settings = { seed: 7, proposals: "2x2", maxMetricCalls: 100, pastPerfect: true };
  const own = await optimize({ ...given, ...settings, ...here(), onEvent: () => {} });
  const { program, propose, trainset, valset, testset } = given;
  const server = await served({ ...program, proposeNewTexts: propose });
  const words = ["optimize", server.url, "--check", "off", "--seed", "7", "--proposals", "2x2", "--past-perfect"];
  for (const [name, rows] of Object.entries({ trainset, valset, testset })) {
    writeFileSync(join(folder, `${name}.jsonl`), rows.map((row) => `${JSON.stringify(row)}\n`).join(""));
    words.push(`--${name}`, `${name}.jsonl`);
  }
  const env = { ...process.env, GEPA_TOKEN: server.token };
  words.push("--max-metric-calls", "100", "--output", "command");
  await promisify(execFile)(process.env.GEPA_CLIENT ?? "", words, { cwd: folder, env });
  const output = join(folder, "command");
  const summary = { event: "summary", run_id: "", status: "completed", reason: null } as const;
  const command = readResult({ ...summary, spent_usd: 0, active_seconds: 0, output });
  expect(own.candidates.length).toBeGreaterThan(3);
  expect([command?.candidates, command?.testScore]).toEqual([own.candidates, own.testScore]);
});

it("pauses a run at an abort; `resume` continues it with the same program alone, and returns the result of a completed one", async () => {
  const controller = new AbortController();
  const aborted = new Promise((resolve) => controller.signal.addEventListener("abort", resolve));
  const propose = (...asked: Parameters<typeof given.propose>) => aborted.then(() => given.propose(...asked)); // it cannot end before
  const stopped = await failure(
    optimize({
      ...given,
      propose,
      ...here(),
      signal: controller.signal,
      onEvent: ({ event }) => event === "candidate" && controller.abort(new Error("enough")),
    }),
  );
  expect(stopped).toBeInstanceOf(OptimizeError);
  expect(stopped).toMatchObject({ status: "paused", cause: { message: "enough" }, result: { seedScore: 0.5 } });
  expect(stopped.message).toContain(`optimize({ ..., resume: "${stopped.runId}" })`);
  const { store } = here();
  const other = optimize({
    ...given,
    propose,
    program: { ...given.program, score: () => 1 },
    store,
    resume: "last",
    onEvent: () => {},
  });
  expect(await failure(other)).toMatchObject({
    status: "refused",
    message: expect.stringContaining("the program's code"),
  });
  const ended = await optimize({ ...given, propose, store, resume: "last", onEvent: () => {} });
  expect(ended).toMatchObject({ runId: stopped.runId, bestScore: 1, testScore: 1 });
  expect(await optimize({ ...given, propose, store, resume: ended.runId, onEvent: () => {} })).toEqual({
    ...ended,
    seconds: expect.closeTo(ended.seconds, 1), // the last milliseconds are not recorded
  });
});

it("a run that failed names the fix of the program and a new run before the way to continue it", async () => {
  const failed = await failure(
    optimize({ ...given, ...here(), propose: () => ({ wrong: "x" }) as never, onEvent: () => {} }),
  );
  expect(failed).toMatchObject({ name: "OptimizeError", status: "failed" });
  const again = `fix it and start a new run; if not, continue it: optimize({ ..., resume: "${failed.runId}" })`;
  expect(failed.message).toContain(again);
});

it("an error of `onEvent` pauses the run and is the error", async () => {
  const error = new Error("the page was closed");
  const onEvent = ({ event }: RunEvent) => {
    if (event === "candidate") throw error;
  };
  expect(await failure(optimize({ ...given, ...here(), onEvent }))).toBe(error);
  expect(existsSync(join(folder, "run", "best_candidate.json"))).toBe(true);
});

it("a run whose optimizer was killed can be resumed", async () => {
  const optimizer = join(folder, "optimizer");
  writeFileSync(optimizer, `#!/bin/sh\necho $$ > ${folder}/pid\nexec ${INSTALLED} "$@"\n`, {
    mode: 0o755,
  });
  const kill = ({ event }: RunEvent) => {
    if (event === "candidate") process.kill(Number(readFileSync(join(folder, "pid"), "utf8")), "SIGKILL");
  };
  const killed = await failure(optimize({ ...given, ...here(), optimizer, onEvent: kill }));
  expect(killed).toMatchObject({ status: "paused", runId: expect.stringMatching(/^\d{8}/) });
  expect(killed.message).toContain(
    `the optimizer was killed. To continue it: optimize({ ..., resume: "${killed.runId}" })`,
  );
});

it.each([
  [{ maxMetricCall: 5 }, "there is no option `maxMetricCall`"],
  [{ url: "http://127.0.0.1:1" }, "there is no option `url`"],
  [{ reflectionLm: "openai/gpt-5" }, "`propose` and `reflectionLm` both propose new texts"],
  [{ trainset: [] }, "`trainset` holds no rows"],
  [{ trainset: [{ text: Number.NaN }] }, "datasets.train[0].text"],
  [{ name: "" }, "`name` is empty: leave it out"],
  [{ patience: null }, "`patience` is null: leave it out"],
  [{ resume: "last", output: "here" }, "leave `output` out"],
  [{ propose: "gpt" }, "`propose` must be a function"],
  [{ program: { ...given.program, scorer: 1 } }, "a program has no `scorer`"],
  [{ signal: new AbortController() }, "`signal` must be an AbortSignal, such as `controller.signal`"],
  [{ onEvent: 1 }, "`onEvent` must be a function, not 1"],
  [{ isolated: "yes" }, '`isolated` must be true or false, not "yes"'],
  [{ resume: true }, '`resume` must be the id of a run, or "last", not true'],
  [{ concurrency: 0 }, "`concurrency` must be a whole number of at least 1"],
  [{ program: { name: "n" } }, "the program needs a function"],
  [{ valset: "none.jsonl" }, "none.jsonl: there is no such file"],
  [{ isolated: true }, "`isolated` needs the first `optimize` of the process"],
])("refuses %j before anything is started", async (wrong, message) => {
  const refused = await failure(optimize({ ...given, ...wrong } as typeof given));
  expect(refused).toMatchObject({ name: "SetupError", message: expect.stringContaining(message) });
});

it("a signal that is aborted already starts nothing", async () => {
  const reason = new Error("early");
  expect(await failure(optimize({ ...given, ...here(), signal: AbortSignal.abort(reason) }))).toBe(reason);
});

it.each([
  [{ maxMetricCalls: undefined }, "no limit ends the run: give `maxMetricCalls`"],
  [
    { failureScore: Number.NaN, perfectScore: 1e300 },
    "`failureScore`: must be a finite number (given: nan)\n`perfectScore`: must be from -1e+100 to 1e+100 (given: 1e+300)",
  ],
])("an optimizer that refuses %j names the options as they are here", async (wrong, message) => {
  const refused = await failure(optimize({ ...given, ...here(), onEvent: () => {}, ...(wrong as object) }));
  expect(refused).toMatchObject({ status: "refused", message: expect.stringContaining(message) });
});

describe("in a process of its own", () => {
  const begin = (options: object, environment: Record<string, string> = {}) =>
    started("tests/programs/optimizing.ts", [JSON.stringify({ ...here(), ...options })], environment);

  it("Ctrl-C pauses the run, names the way to resume it, and ends the process as it would have", async () => {
    const child = begin({}, { TEST_DELAY_MS: "50" });
    await child.complained("the seed scores 0.5");
    child.process.kill("SIGINT");
    expect(await child.ended).toBe("SIGINT");
    expect(child.stderr()).toMatch(/evolverpc: run (\S+) is paused: stopped by hand\. .*resume: "\1"/);
    expect(child.stderr()).not.toContain("evolverpc resume");
    const again = begin({ output: undefined, resume: "last" });
    expect(await nextMessage(again)).toMatchObject({ bestScore: 1 });
  });

  it("with `isolated`, an example that would end the process only fails", async () => {
    // The processes of its examples need the arguments of Node that this one has, such as those that load TypeScript.
    const words = ["--import", "data:text/javascript,globalThis.imported=1", compiled("tests/programs/optimizing.ts")];
    const options = JSON.stringify({ ...here(), isolated: true });
    const child = startedNode([...words, options], { TEST_HARM: "exit", TEST_NEEDS: "imported" });
    const { value } = await child.lines.next();
    expect({ status: await child.ended, errors: value ?? child.stderr() }).toMatchObject({ status: 0 });
    expect(JSON.parse(value)).toMatchObject({ bestScore: 1 });
    expect(child.stderr()).toContain("process exited with status 7");
    expect(child.stderr()).toContain("loadCandidate(");
    expect(child.stderr()).toMatch(/^failed .*`npx evolverpc show .* --failures` lists them/m);
  });

  it("a program that ends its process ends the optimizer", async () => {
    const child = begin({}, { TEST_HARM: "exit" });
    expect(await child.ended).toBe(7); // the optimizer writes to its standard error, so it has ended too
    expect(child.stderr().match(/^evolverpc: .*/gm)).toEqual([
      "evolverpc: the process ended before the run did. If the program ends it, set `isolated: true`: its examples then run in other processes",
    ]);
    expect(child.stderr()).not.toContain("ConnectionLost");
  });
});
