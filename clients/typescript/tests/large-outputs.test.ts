import { expect, test } from "vitest";
import { withinBytes } from "../src/evaluate/example-results.js";

test("a result larger than accepted fails its example, and the message names both sizes", () => {
  const small = { status: "ok" as const, score: 1, output: "é", seconds: 0 };
  expect(withinBytes(small, 100)).toBe(small);
  expect(withinBytes(small, new TextEncoder().encode(JSON.stringify(small)).length)).toBe(small);
  expect(withinBytes({ ...small, output: "é".repeat(100), log: "printed" }, 100)).toMatchObject({
    error: { log: "printed" },
  });
  expect(withinBytes({ ...small, output: "é".repeat(100), usage: { calls: 1 } }, 100)).toEqual({
    status: "program_error",
    score: null,
    output: null,
    error: { type: "output_too_large", message: "output of 202 bytes, more than 100 accepted" },
    usage: { calls: 1 },
    seconds: 0,
  });
});

test("a failure whose output is larger than accepted stays that failure, without the output", () => {
  const error = { type: "RateLimitError", message: "later" };
  const failed = { status: "infra_error" as const, score: null, output: "x".repeat(200), error, seconds: 0 };
  expect(withinBytes(failed, 150)).toEqual({ ...failed, output: null });
});
