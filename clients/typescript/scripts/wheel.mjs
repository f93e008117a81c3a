// Build the optimizer's wheel into optimizer/, which the packed package carries, with the versions it was tested with.
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const repository = fileURLToPath(new URL("../../../", import.meta.url));
const folder = fileURLToPath(new URL("../optimizer/", import.meta.url));
const uv = join(repository, ".venv", "bin", "uv");
const python = join(repository, ".venv", "bin", "python");
const pip = ["-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "--wheel-dir"];
const [program, ...words] = existsSync(uv)
  ? [uv, "build", "--quiet", "--wheel", "--no-create-gitignore", "--out-dir"]
  : [existsSync(python) ? python : "python3", ...pip];

rmSync(folder, { recursive: true, force: true });
mkdirSync(folder);
const { status, error } = spawnSync(program, [...words, folder, repository], { stdio: ["ignore", 2, 2] });
if (status !== 0) {
  const why = error?.message ?? `${program} exited with status ${status}`;
  console.error(`the optimizer's wheel cannot be built: ${why}`);
  process.exit(1);
}
const constraints = readFileSync(join(repository, "constraints.txt"), "utf8");
writeFileSync(join(folder, "constraints.txt"), constraints.replace(/^pip==.*\n/m, "")); // pipx needs a pip of its own choice
