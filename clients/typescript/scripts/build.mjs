// Compile src/ to dist/ in place, so that a process that runs from there still finds its modules.
import { spawnSync } from "node:child_process";
import { copyFileSync, existsSync, readdirSync, rmSync, statSync } from "node:fs";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../", import.meta.url));
const dist = join(root, "dist");
const began = Date.now();

const compiler = join(root, "node_modules", "typescript", "bin", "tsc");
if (!existsSync(compiler)) {
  console.error(`evolverpc cannot be built, for ${compiler} is missing: run npm ci first, in ${root}`);
  process.exit(1);
}
const { status } = spawnSync(process.execPath, [compiler, "-p", "tsconfig.build.json"], {
  cwd: root,
  stdio: "inherit",
});
if (status !== 0) process.exit(status ?? 1);
// Compiled already; the compiler passes over it.
for (const file of ["validators.js", "validators.d.ts"]) {
  copyFileSync(join(root, "src/generated", file), join(dist, "generated", file));
}
// What was not written this time belongs to a module that is no more. A second's grace: some clocks of files are coarse.
for (const entry of readdirSync(dist, { recursive: true, withFileTypes: true })) {
  const file = join(entry.parentPath ?? entry.path, entry.name);
  if (entry.isFile() && !basename(file).startsWith(".") && statSync(file).mtimeMs < began - 1000) rmSync(file);
}
