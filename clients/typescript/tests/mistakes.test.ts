// Common mistakes: each gets a clear message that names its place.
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it, onTestFinished, vi } from "vitest";
import { SetupError } from "../src/base/configuration.js";
import { serveOptions } from "../src/bin/serve-file.js";
import { type ServeOptions, serve } from "../src/server/serve.js";
import { started } from "./processes.js";
import { batchProgramOf, evaluate, programOf, served, temporaryFolder } from "./support.js";

const quiet = { announce: () => {}, ownsProcess: false };

async function failure(program: unknown, options: ServeOptions = {}): Promise<SetupError> {
  const error = await serve(program as never, { ...quiet, ...options }).catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(SetupError);
  return error as SetupError;
}

it.each([
  [undefined, "the program must be an object, not undefined"],
  [programOf({ name: "" }), "the program needs a `name`"],
  [{ name: "x", seedCandidate: { a: "" } }, "the program needs a function: `run(example, candidate)`, or `evaluate"],
  [programOf({ run: "answer" as never }), '`run` must be a function, not "answer"'],
  [batchProgramOf({ evaluate: {} as never }), "`evaluate` must be a function, not an object"],
  [programOf({ score: 1 as never }), "`score` must be a function, or absent, not 1"],
  [programOf({ readsTrajectory: "yes" as never }), '`readsTrajectory` must be true or false, not "yes"'],
  [
    { name: "x", seedCandidate: { a: "" }, run: () => 1, readsTrajectory: true },
    "`readsTrajectory` is about `score`, which the program does not have",
  ],
  [
    { name: "x", run: () => 1 },
    '`seedCandidate` must map components to the texts to start from, such as { prompt: "..." }',
  ],
  [programOf({ seedCandidate: "Be kind." as never }), 'it is "Be kind."'],
  [programOf({ seedCandidate: {} }), "it is empty"],
  [programOf({ seedCandidate: { a: "", b: 3 } as never }), "its `b` is 3"],
  [programOf({ seedCandidate: () => ({ a: null }) as never }), "its `a` is null"],
  [
    programOf({ datasets: { train: { 0: "a" } as never } }),
    "`datasets.train` must be rows: an array, another iterable, or the path of a file; not an object",
  ],
  [
    programOf({ datasets: { train: ["a", { when: new Map() }] } }),
    "a Map has no JSON form (at datasets.train[1].when)",
  ],
])("a program such as %o", async (program, message) => {
  expect((await failure(program)).message).toContain(message);
});

it.each<[ServeOptions, string]>([
  [{ prot: 80 } as ServeOptions, "there is no option `prot`; there are: concurrency, "],
  [{ port: Number.NaN }, "`port` must be a whole number from 0 to 65535, not NaN"],
  [{ port: "8000" as never }, '`port` must be a whole number from 0 to 65535, not "8000"'],
  [{ concurrency: 0 }, "`concurrency` must be a whole number of at least 1, not 0"],
  [{ maxAnswerBytes: -1 }, "`maxAnswerBytes` must be a whole number of at least 0, not -1"],
  [{ exampleTimeoutS: 0 }, "`exampleTimeoutS` must be above 0, or null"],
  [{ drainS: Number.NaN }, "`drainS` must be a number of seconds, not NaN"],
  [{ tokenFile: "/nowhere/token" }, "`tokenFile` /nowhere/token cannot be created (ENOENT: no such file or directory"],
  [{ host: "0.0.0.0" }, "a server on 0.0.0.0 needs a token of yours: set `tokenFile`"],
])("options such as %o", async (options, message) => {
  expect((await failure(programOf(), options)).message).toContain(message);
});

it.each([["port"], ["concurrency"]])("the option %s in the program's object literal", async (name) => {
  const { message } = await failure(programOf({ [name]: 80 } as never));
  expect(message).toContain(`\`${name}\` is an option, not a part of the program: pass it in the second argument`);
});

it("leaves a class with a field of an option's name alone", async () => {
  class Sorter {
    name = "sorter";
    log = () => {};
    seedCandidate = { rules: "" };
    run = () => 1;
    score = () => 1;
  }
  expect((await evaluate(await served(new Sorter()), [1]))[0].status).toBe("ok");
});

it("HTTP where `evolverpc serve` waits for an answer over stdio", async () => {
  vi.stubEnv("GEPA_STDIO", "1");
  onTestFinished(() => {
    vi.unstubAllEnvs();
  });
  expect((await failure(programOf())).message).toContain("call `serveStdio` instead of `serve`");
});

it("a token file with no token in it", async () => {
  const tokenFile = join(temporaryFolder(), "token");
  for (const content of ["", "\n", "two words"]) {
    writeFileSync(tokenFile, content);
    expect((await failure(programOf(), { tokenFile })).message).toContain(`the content of the token file ${tokenFile}`);
  }
});

it("a port that is taken", async () => {
  const port = Number(new URL((await served(programOf())).url).port);
  expect((await failure(programOf(), { port })).message).toContain(
    `cannot listen on 127.0.0.1, port ${port}: the port is in use, perhaps by a server that you started before: end it, `,
  );
});

it("a failing seed function is reported with the program's own frames", async () => {
  const seedCandidate = () => {
    throw new RangeError("no such prompt");
  };
  const { message } = await failure(programOf({ seedCandidate }));
  expect(message).toMatch(/^`seedCandidate` failed: RangeError: no such prompt\n {4}at .*mistakes\.test\.ts/);
  expect(message).not.toContain("/src/");
});

it("a process that cannot start names its own line and exits with a status", async () => {
  const child = started("tests/programs/mistaken.ts");
  expect(await child.ended).toBe(1);
  expect(child.stderr()).toContain("SetupError: the program needs a function");
  expect(child.stderr()).toMatch(/mistaken\.js:\d+/);
  expect(child.stderr()).not.toContain("/src/");
});

it("flags are numbers, texts or switches", () => {
  const words = ["program.js", "--token-file", "7", "--host", "::1", "--drain-s", "0.5", "--max-queue", "0", "--json"];
  expect(serveOptions(words)).toMatchObject({
    options: { tokenFile: "7", host: "::1", drainS: 0.5, maxQueue: 0, json: true },
    program: "program.js",
    stdio: false,
  });
});

it("`-h` prints the usage", async () => {
  const child = started("src/bin/conformance.ts", ["-h"]);
  expect(await child.ended).toBe(0);
  expect(child.stderr()).toBe("");
});

it("a server prints the next command, which needs no rows if the program has some", async () => {
  const child = started("tests/programs/ready.ts");
  await child.lines.next();
  const command = /: npx evolverpc check http:\/\/127\.0\.0\.1:\d+ --token-file '(.*)'$/;
  const [, file = ""] = (await child.lines.next()).value.match(command) ?? [];
  expect(existsSync(file)).toBe(true);
});

it("an invalid command line prints the usage", async () => {
  for (const [args, message] of [
    [["--port", "abc"], "`port` must be"],
    [["--prot", "1"], "--prot"],
  ] as const) {
    const child = started("src/bin/conformance.ts", [...args]);
    expect(await child.ended).toBe(2);
    expect(child.stderr()).toContain(message);
    expect(child.stderr()).toContain("evolverpc-conformance [--stdio]");
    expect(child.stderr()).not.toContain("    at ");
  }
});
