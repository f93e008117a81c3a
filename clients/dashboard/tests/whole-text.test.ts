/** The path of a whole text. */

import { expect, test } from "vitest";
import { wholeText } from "../src/loading";

test("a component may be named by anything, half of a surrogate pair included", () => {
  expect(wholeText("/api", 2, "a prompt&more")).toBe("/api/text?candidate=2&component=a%20prompt%26more");
  expect(wholeText("/api", 2, "\ud800")).toBe("/api/text?candidate=2&component=%EF%BF%BD");
});
