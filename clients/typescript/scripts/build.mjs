// Compile src/ to dist/ in place, so that a process that runs from there still finds its modules.
// An argument names another node_modules whose compiler and types of Node are used; the sources need nothing else.
import { spawnSync } from "node:child_process";
import { copyFileSync, existsSync, readdirSync, rmSync, statSync } from "node:fs";
import { basename, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../", import.meta.url));
const dist = join(root, "dist");
const began = Date.now();

const [given] = process.argv.slice(2);
const tools = given === undefined ? join(root, "node_modules") : resolve(given);
const compiler = join(tools, "typescript", "bin", "tsc");
if (!existsSync(compiler)) {
  console.error(`evolverpc cannot be built, for ${compiler} is missing: run npm ci first, in ${root}`);
  process.exit(1);
}
const { status } = spawnSync(
  process.execPath,
  [compiler, "-p", "tsconfig.build.json", "--typeRoots", join(tools, "@types")],
  {
    cwd: root,
    stdio: "inherit",
  },
);
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
