// Calls functions of a compiled tickets.js: one JSON array `[name, ...args]` a line in, the JSON result a line out.
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const { tickets } = await import(pathToFileURL(process.argv[2]).href);
const context = { signal: new AbortController().signal, captureTraces: false, trace: [], usage: {} };
for await (const line of createInterface({ input: process.stdin, crlfDelay: Number.POSITIVE_INFINITY })) {
  const [name, ...args] = JSON.parse(line);
  let answer;
  try {
    answer = { result: await tickets[name](...args, context) };
  } catch (error) {
    answer = { failed: error.constructor.name };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
