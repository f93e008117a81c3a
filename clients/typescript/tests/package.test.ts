import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { PACKAGE_VERSION } from "../src/base/version.js";
import { errorOfServer } from "../src/client/client.js";
import { ERRORS } from "../src/generated/contract.js";
import * as errors from "../src/generated/errors.js";
import * as everything from "../src/index.js";

const root = new URL("../", import.meta.url);

it("the version is the one in package.json", () => {
  expect(JSON.parse(readFileSync(new URL("package.json", root), "utf8")).version).toBe(PACKAGE_VERSION);
});

it("every error of the contract has an exported class that survives the wire", () => {
  for (const [name, row] of Object.entries(ERRORS)) {
    const kind = errors[name as keyof typeof ERRORS];
    expect(everything[name as keyof typeof ERRORS]).toBe(kind);
    const wire = new kind(undefined, { extra: 1 }).toWire();
    expect(wire).toEqual({ code: row.code, message: row.message, data: { retryable: row.retryable, extra: 1 } });
    const back = errorOfServer(wire);
    expect(back).toBeInstanceOf(kind);
    expect(back.toWire()).toEqual(wire);
  }
});

it("the exports are the intended ones", () => {
  const own = Object.keys(everything).filter((name) => !(name in ERRORS));
  expect(own.sort()).toEqual(
    [
      "BadResponse",
      "CandidateError",
      "ClientError",
      "ConnectionLost",
      "Image",
      "METHODS",
      "ParseFailure",
      "MemoryStore",
      "OptimizeError",
      "PACKAGE_VERSION",
      "PROTOCOL_VERSION",
      "Refused",
      "RpcClient",
      "RpcError",
      "SetupError",
      "conformanceProgram",
      "defineProgram",
      "handler",
      "loadCandidate",
      "readRows",
      "saveCandidate",
      "optimize",
      "serve",
      "serveStdio",
      "splitRows",
      "step",
      "tracedFetch",
    ].sort(),
  );
});

it("the lock file names no download address, and every package that any platform needs", () => {
  const text = readFileSync(new URL("package-lock.json", root), "utf8");
  expect(text).not.toContain('"resolved"');
  const packages: Record<string, { optionalDependencies?: object }> = JSON.parse(text).packages;
  const locked = new Set(Object.keys(packages).map((path) => path.split("node_modules/").at(-1)));
  const needed = Object.values(packages).flatMap(({ optionalDependencies = {} }) => Object.keys(optionalDependencies));
  expect(needed.filter((name) => !locked.has(name))).toEqual([]);
});
