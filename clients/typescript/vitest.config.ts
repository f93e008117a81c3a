import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

const OPTIMIZER = fileURLToPath(new URL("../../.venv/bin/gepa-client", import.meta.url));

export default defineConfig({
  test: {
    include: ["tests/**/*.test.ts"],
    testTimeout: 20_000,
    hookTimeout: 20_000,
    // What the person running the tests has set is none of theirs.
    env: { GEPA_TOKEN: "", GEPA_READY_JSON: "", GEPA_CLIENT: OPTIMIZER },
  },
});
