import { expect, test } from "vitest";
import { candidateOrProposal, spent } from "../src/parts/format";

test("A cost that no program reported is no price of zero", () => {
  expect(spent(0, 24, 24)).toBe("none reported");
  expect(spent(0, 24, 0)).toBe("unknown: 24 results unpriced");
  expect(spent(1.5, 24, 20)).toBe("$1.50 and 4 unpriced");
  expect(spent(1.5, 24, 24)).toBe("$1.50");
  expect(spent(0, 0, 0)).toBe("$0.00");
});

test("A text that is in no pool is named as a proposal", () => {
  expect(candidateOrProposal("0")).toBe("candidate 0 (seed)");
  expect(candidateOrProposal("b750eae5")).toBe("proposal b750eae5");
});
