import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { faults, type WireTypeName } from "../src/base/validate.js";
import * as validators from "../src/generated/validators.js";

const examples = new URL("../../../protocol/examples/", import.meta.url);
const types = readdirSync(examples, { withFileTypes: true }).filter((entry) => entry.isDirectory());

describe("the shared examples of every wire type", () => {
  it("cover every type the package validates, and no other", () => {
    expect(types.map(({ name }) => name).sort()).toEqual(Object.keys(validators).sort());
  });

  for (const { name } of types) {
    const folder = new URL(`${name}/`, examples);
    for (const file of readdirSync(folder).filter((entry) => entry.endsWith(".json"))) {
      it(`${name}/${file} is classified correctly`, () => {
        const found = faults(name as WireTypeName, JSON.parse(readFileSync(new URL(file, folder), "utf8")));
        if (file.startsWith("valid-")) expect(found).toEqual([]);
        else expect(found).not.toEqual([]);
      });
    }
  }
});
