// Compiles `src` and the programs of the tests once for all files of tests: a process that compiles them itself takes
// three times as long to start.
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import type { TestProject } from "vitest/node";

declare module "vitest" {
  interface ProvidedContext {
    /** A folder with `src` and `tests/programs` as JavaScript. */
    compiled: string;
  }
}

const PACKAGE = fileURLToPath(new URL("..", import.meta.url));

export default async function setup(project: TestProject): Promise<() => void> {
  const compiled = mkdtempSync(join(PACKAGE, "node_modules", ".compiled-")); // there they find the package's modules
  writeFileSync(join(compiled, "package.json"), '{ "type": "module" }');
  const files = ["src", "tests/programs"].flatMap((folder) =>
    (readdirSync(join(PACKAGE, folder), { recursive: true }) as string[]).map((name) => join(folder, name)),
  );
  await build({
    absWorkingDir: PACKAGE,
    entryPoints: files.filter((file) => /(?<!\.d)\.[jt]s$/.test(file)),
    outbase: PACKAGE,
    outdir: compiled,
    format: "esm",
    platform: "node",
    logLevel: "warning",
  });
  project.provide("compiled", compiled);
  return () => rmSync(compiled, { recursive: true });
}
