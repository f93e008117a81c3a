import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

const OPTIMIZER = fileURLToPath(new URL("../../.venv/bin/gepa-client", import.meta.url));

const FILES = "tests/**/*.test.ts";
/** These need the traces of the whole process for themselves: the provider of OpenTelemetry, and the AI SDK's. */
const IN_OWN_PROCESSES = ["tests/spans.test.ts", "tests/model-calls.test.ts"];

export default defineConfig({
  test: {
    globalSetup: "tests/compile-programs.ts",
    testTimeout: 60_000,
    hookTimeout: 60_000,
    // What the person running the tests has set is none of theirs.
    env: { GEPA_TOKEN: "", GEPA_READY_JSON: "", GEPA_CLIENT: OPTIMIZER },
    // To import the package again for each file takes a quarter of the time of all tests.
    projects: [
      { extends: true, test: { name: "one process", include: [FILES], exclude: IN_OWN_PROCESSES, isolate: false } },
      { extends: true, test: { name: "own processes", include: IN_OWN_PROCESSES } },
    ],
  },
});
