// `evolverpc serve FILE` serves the program that a file of Node exports.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { sha256 } from "../src/server/node-process.js";
import type { RunningServer } from "../src/server/serve.js";
import { nextMessage, started } from "./processes.js";
import { call, temporaryFolder } from "./support.js";

const PROGRAM = '{ name: "exported", seedCandidate: { rules: "" }, run: (row) => row, score: () => 1 }';

it.each([
  ["named.mjs", `export const program = ${PROGRAM};`],
  ["default.mjs", `export default ${PROGRAM};`],
  ["common.cjs", `Object.assign(module.exports, { program: ${PROGRAM} });`],
])("the program of %s is served as the flags state, with the digest of the file", async (name, content) => {
  const file = join(temporaryFolder(), name);
  writeFileSync(file, content);
  const flags = ["--json", "--concurrency", "3", "--example-timeout-s", "2.5"];
  const server = (await nextMessage(started("src/bin/evolverpc.ts", ["serve", file, ...flags]))) as RunningServer;
  const { result } = await call(server, "discover");
  expect(result.program).toMatchObject({ name: "exported", digest: sha256(readFileSync(file)) });
  expect(result.limits).toMatchObject({ max_concurrency: 3, example_timeout_s: 2.5 });
});
