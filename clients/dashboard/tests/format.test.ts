import { expect, test } from "vitest";
import { candidateOrProposal } from "../src/parts/format";

test("A text that is in no pool is named as a proposal", () => {
  expect(candidateOrProposal("0")).toBe("candidate 0 (seed)");
  expect(candidateOrProposal("b750eae5")).toBe("proposal b750eae5");
});
