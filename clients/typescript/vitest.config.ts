import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["tests/**/*.test.ts"],
    testTimeout: 20_000,
    hookTimeout: 20_000,
    // A promise rejected unseen is a defect, in tests as elsewhere.
    dangerouslyIgnoreUnhandledErrors: false,
  },
});
