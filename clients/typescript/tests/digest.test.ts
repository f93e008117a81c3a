import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it, onTestFinished } from "vitest";
import { handler } from "../src/server/handler.js";
import { compiled, nextMessage, startedNode } from "./processes.js";
import { answerOf, call, programOf, served, temporaryFolder } from "./support.js";

/** The digest that a program reports over stdio, whose file ends with `added`. */
async function digestOf(added = ""): Promise<string> {
  const file = join(temporaryFolder(), "judge.mjs");
  const text = readFileSync(compiled("tests/programs/judge.ts"), "utf8");
  writeFileSync(file, text.replace("../../src/server/stdio.js", compiled("src/server/stdio.ts")) + added);
  const child = startedNode([file]);
  child.process.stdin.write('{"jsonrpc": "2.0", "id": 1, "method": "discover"}\n');
  return (await nextMessage(child)).result.program.digest;
}

it("the file a process was started with has the same digest each time, and another after an edit", async () => {
  const [first, again, edited] = await Promise.all([digestOf(), digestOf(), digestOf("// edited\n")]);
  expect(first).toMatch(/^[0-9a-f]{64}$/);
  expect(again).toBe(first);
  expect(edited).not.toBe(first);
});

it("a given digest is used unchanged", async () => {
  const server = await served(programOf(), { digest: "build 17" });
  expect((await call(server, "discover")).result.program.digest).toBe("build 17");
  await expect(served(programOf(), { digest: "" })).rejects.toThrow("`digest` must be a text, and not empty");
});

it("without a readable file there is no digest", async () => {
  const [, script] = process.argv;
  onTestFinished(() => {
    if (script !== undefined) process.argv[1] = script;
  });
  process.argv[1] = join(temporaryFolder(), "nowhere.js");
  expect((await call(await served(programOf()), "discover")).result.program).not.toHaveProperty("digest");
});

it("a handler, which may be one of many in its process, has one only if it was given", async () => {
  for (const digest of [undefined, "build 17"]) {
    const handle = handler(programOf(), { token: "secret", ...(digest === undefined ? {} : { digest }) });
    expect((await answerOf(handle, "discover")).result.program.digest).toBe(digest);
  }
});
