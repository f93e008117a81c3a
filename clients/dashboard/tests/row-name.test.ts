import { expect, test } from "vitest";
import { rowName } from "../src/parts/row-name";

test("A row has the same name with its split wherever it stands, and one of two possible splits names both", () => {
  expect(rowName("val 7")).toBe("val 7");
  expect(rowName("train a b")).toBe("train a b");
  expect(rowName("test 3")).toBe("test 3");
  expect(rowName("train or val 14")).toBe("train or val 14");
  expect(rowName("7")).toBe("row 7");
});
