// Build the optimizer's wheel into optimizer/, which the packed package carries, with the versions it was tested with.
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const repository = fileURLToPath(new URL("../../../", import.meta.url));
const folder = fileURLToPath(new URL("../optimizer/", import.meta.url));
const own = join(repository, ".venv", "bin", "python");

rmSync(folder, { recursive: true, force: true });
mkdirSync(folder);
const python = existsSync(own) ? own : "python3";
const pip = ["-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"];
const { status, error } = spawnSync(python, [...pip, "--wheel-dir", folder, repository], { stdio: ["ignore", 2, 2] });
if (status !== 0) {
  console.error(`the optimizer's wheel cannot be built: ${error?.message ?? `pip exited with status ${status}`}`);
  process.exit(1);
}
const constraints = readFileSync(join(repository, "constraints.txt"), "utf8");
writeFileSync(join(folder, "constraints.txt"), constraints.replace(/^pip==.*\n/m, "")); // pipx needs a pip of its own choice
