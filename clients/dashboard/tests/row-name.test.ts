import { expect, test } from "vitest";
import { rowName, rowNames } from "../src/parts/row-name";

test("A row has the name of its split wherever it stands, and one of two possible splits names both", () => {
  expect(rowName("val 7")).toBe("validation row 7");
  expect(rowName("train a b")).toBe("training row a b");
  expect(rowName("test 3")).toBe("test row 3");
  expect(rowName("train or val 14")).toBe("training or validation row 14");
  expect(rowName("7")).toBe("row 7");
});

test("Several rows are named by split, each split once", () => {
  expect(rowNames(["train 5", "val 3", "train 94"])).toBe("training rows 5, 94; validation row 3");
});
