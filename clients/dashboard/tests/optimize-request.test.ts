import { expect, test } from "vitest";
import { requestOf } from "../src/service/optimize-request";

test("Rows that are typed are a JSON array or an object a line, and options are an object", () => {
  const given = { trainset: '[{"a": 1}]', valset: '{"a": 2}\n\n{"a": 3}', options: '{"seed": 0}', reflection_lm: null };
  const request = { trainset: [{ a: 1 }], valset: [{ a: 2 }, { a: 3 }], options: { seed: 0 } };
  expect(requestOf(given)).toEqual({ request });
  const fields = ["trainset", "valset", "testset", "options"].map((field) => ({ field }));
  const wrong = requestOf({ trainset: null, valset: "[1]", testset: "[[]]", options: "[]" });
  expect(wrong).toMatchObject({ problem: { errors: fields } });
  const errors = [{ field: "trainset", message: "line 3 is not JSON" }];
  expect(requestOf({ trainset: '{"a": 1}\n\n{' })).toMatchObject({ problem: { errors } });
});
