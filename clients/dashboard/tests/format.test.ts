import { expect, test } from "vitest";
import { count, duration, money, score, took } from "../src/parts/format";

test("What is 0 is known, and what is null is not", () => {
  expect([score(0), count(0), money(0), duration(0)]).toEqual(["0", "0", "$0.00", "0 ms"]);
  expect([score(null), count(null), money(null), duration(null)]).toEqual(["none", "unknown", "unknown", "unknown"]);
  expect([money(0.0123), money(12.3), duration(3660)]).toEqual(["$0.0123", "$12.30", "1 h 1 min"]);
  expect([duration(59.4), duration(59.5)]).toEqual(["59 s", "1 min"]);
  expect(took({ seconds: 0, input_tokens: 0, output_tokens: 1, cost_usd: null })).toBe(
    "0 ms, 0 input tokens, 1 output token",
  );
});
