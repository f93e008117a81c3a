// Compiles src/ to dist/, emptied first so that no deleted module lives on in the package.
import { spawnSync } from "node:child_process";
import { copyFileSync, rmSync } from "node:fs";

const root = new URL("../", import.meta.url);
rmSync(new URL("dist", root), { recursive: true, force: true });
const { status } = spawnSync("npx", ["tsc", "-p", "tsconfig.build.json"], { cwd: root, stdio: "inherit" });
if (status !== 0) process.exit(status ?? 1);
// Compiled already; the compiler passes over it.
for (const file of ["validators.js", "validators.d.ts"]) {
  copyFileSync(new URL(`src/generated/${file}`, root), new URL(`dist/generated/${file}`, root));
}
