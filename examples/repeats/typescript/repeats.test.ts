import assert from "node:assert/strict";
import { test } from "node:test";
import { firstRepeat } from "./repeats.js";

test("the first word that comes again is found", () => {
  assert.equal(firstRepeat("one two three two one", ""), "two");
});

test("ignored words may come again", () => {
  assert.equal(firstRepeat("the cat and the dog and the cat", "the and"), "cat");
});

test("no repeat is an empty answer", () => {
  assert.equal(firstRepeat("one two three", ""), "");
});
