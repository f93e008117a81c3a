// Build dist/ if it is missing: npm runs this when a program's package.json names this folder of a clone.
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../", import.meta.url));
// The settings of the npm that runs this (--prefix, --omit) are not meant for this folder.
const env = Object.fromEntries(
  Object.entries(process.env).filter(
    ([name]) => !/^npm_(?!config_(cache|registry|cafile|offline|userconfig)$)/i.test(name),
  ),
);

function run(...command) {
  const [program, ...words] = command;
  const { status, error } = spawnSync(program, words, { cwd: root, env, stdio: ["ignore", 2, 2] });
  if (status === 0) return;
  const why = error === undefined ? `exited with status ${status}` : error.message;
  console.error(`evolverpc has no dist/ yet, and it cannot be built: \`${command.join(" ")}\` ${why}.`);
  console.error(`Run this, and install again: cd ${root} && npm ci`);
  process.exit(1);
}

if (!existsSync(join(root, "dist", "index.js"))) {
  if (!existsSync(join(root, "node_modules", ".bin", "tsc"))) {
    run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error");
  }
  run("node", "scripts/build.mjs");
}
