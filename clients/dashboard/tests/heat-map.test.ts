import { expect, test } from "vitest";
import { scaleOf } from "../src/parts/heat-map";

test("Scores between 0 and 1 have the scale from 0 to 1, also if all are equal", () => {
  expect(scaleOf([Float64Array.of(0, 0), Float64Array.of(Number.NaN)])).toEqual([0, 1]);
  expect(scaleOf([Float64Array.of(0.5, 0.7)])).toEqual([0, 1]);
  expect(scaleOf([Float64Array.of(-2, 40)])).toEqual([-2, 40]);
});
