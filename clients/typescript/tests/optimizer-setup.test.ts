import { spawnSync } from "node:child_process";
import { chmodSync, mkdirSync, mkdtempSync, readdirSync, writeFileSync } from "node:fs";
import { rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { PACKAGE_VERSION } from "../src/base/version.js";
import { optimizerCommand } from "../src/optimize/optimizer-setup.js";
import { compiled } from "./processes.js";

let folder: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "evolverpc-setup-"));
  for (const name of ["bin", "own", "cache"]) mkdirSync(join(folder, name));
  vi.stubEnv("PATH", `${join(folder, "bin")}:${join(folder, "own")}`);
  vi.stubEnv("XDG_CACHE_HOME", join(folder, "cache"));
  vi.stubEnv("GEPA_CLIENT", undefined);
  vi.spyOn(console, "error").mockImplementation(() => {});
  for (const name of ["mkdir", "chmod", "sleep"]) script(name, `PATH=/bin:/usr/bin exec ${name} "$@"`, "own");
});

afterEach(async () => {
  vi.unstubAllEnvs();
  vi.restoreAllMocks();
  await rm(folder, { recursive: true });
});

function script(name: string, text: string, place = "bin"): string {
  const path = join(folder, place, name);
  writeFileSync(path, `#!/bin/sh\n${text}\n`);
  chmodSync(path, 0o755);
  return path;
}

const command = (named?: string, signal?: AbortSignal) => optimizerCommand(named, signal, join(folder, "clone"));
const failure = (promise: Promise<unknown>): Promise<string> => promise.then(String, (error) => error.message);
const cached = () => readdirSync(join(folder, "cache"), { recursive: true }).filter((name) => name !== "evolverpc");

/** Stands for uv: makes an environment with an optimizer of this version, unless `pip` fails. */
const UV = `
case "$1" in
--version) echo "uv 0.13" ;;
venv) while [ $# -gt 1 ]; do shift; done; mkdir -p "$1/bin" ;;
pip) sleep 0.2; folder="\${5%/bin/python}"
  printf '#!/bin/sh\\necho "evolverpc ${PACKAGE_VERSION}"\\n' > "$folder/bin/gepa-client"; chmod +x "$folder/bin/gepa-client" ;;
esac`;

it("an optimizer on PATH is used if its version is this one's", async () => {
  script("gepa-client", `echo "evolverpc ${PACKAGE_VERSION}"`);
  expect(await command()).toBe("gepa-client");
});

it("an optimizer of another version on PATH is passed over, with a note", async () => {
  script("gepa-client", 'echo "evolverpc 0.0.9"');
  script("uv", UV);
  expect(await command()).toContain(join(folder, "cache"));
  expect(console.error).toHaveBeenCalledWith(expect.stringContaining("has version 0.0.9"));
});

it("a named optimizer that has another version, or does not run, is refused", async () => {
  const other = script("other", 'echo "evolverpc 0.0.9"');
  expect(await failure(command(other))).toMatch(/other has version 0\.0\.9, .*needs its own version/);
  vi.stubEnv("GEPA_CLIENT", "/none");
  expect(await failure(command())).toContain("/none does not run");
});

it("the optimizer of the clone that the package was installed from is used before another one is set up", async () => {
  script("uv", UV);
  mkdirSync(join(folder, "clone", ".venv", "bin"), { recursive: true });
  const older = script("gepa-client", 'echo "evolverpc 0.0.9"', "clone/.venv/bin");
  expect(await command()).toContain(join(folder, "cache"));
  script("gepa-client", `echo "evolverpc ${PACKAGE_VERSION}"`, "clone/.venv/bin");
  expect(await command()).toBe(older);
});

it("the command `evolverpc` runs the optimizer with the words that it is given, and ends as it does", () => {
  const answers = `[ "$1" = die ] && kill -KILL $$; echo "$EVOLVERPC_COMMAND ran $*"; exit 3`;
  const named = script("named", `[ "$1" = --version ] && echo "evolverpc ${PACKAGE_VERSION}" && exit; ${answers}`);
  const env = { ...process.env, GEPA_CLIENT: named };
  const own = compiled("src/bin/evolverpc.ts");
  const ended = spawnSync(process.execPath, [own, "show", "last"], { env, encoding: "utf8" });
  expect([ended.status, ended.stdout]).toEqual([3, "npx evolverpc ran show last\n"]);
  expect(spawnSync(process.execPath, [own, "die"], { env }).status).toBe(128 + 9);
});

it("it is set up once, by several processes at the same time too", async () => {
  script("uv", UV);
  const [first, second] = await Promise.all([command(), command()]);
  expect(second).toBe(first);
  expect(await command()).toBe(first);
  const made = readdirSync(join(folder, "cache", "evolverpc"));
  expect(made).toHaveLength(2);
});

it("a set-up that fails states what failed, and leaves nothing", async () => {
  script("uv", 'case "$1" in --version) ;; *) echo "error: dns error: no such host pypi.org" >&2; exit 2 ;; esac');
  const message = await failure(command());
  expect(message).toContain("no such host pypi.org");
  expect(message).toContain("run this again");
  expect(cached()).toEqual([]);
});

it("a set-up that is stopped leaves nothing", async () => {
  script("uv", UV.replace("sleep 0.2", "exec sleep 60"));
  const stop = new AbortController();
  vi.mocked(console.error).mockImplementation(() => setTimeout(() => stop.abort(new Error("stopped")), 100));
  expect(await failure(command(undefined, stop.signal))).toBe("stopped");
  expect(cached()).toEqual([]);
});

it("without uv, and with a Python that is too old, the message names the command that installs it", async () => {
  script("python3", "echo 3.9; exit 1");
  expect(await failure(command())).toMatch(/needs uv, Python 3\.11 .*Install uv: curl .*install\.sh/);
  expect(console.error).not.toHaveBeenCalled();
});

it("without uv, the first Python that is new enough makes the environment", async () => {
  script("python3", "echo False");
  const text = `'#!/bin/sh\\necho "evolverpc ${PACKAGE_VERSION}"\\n'`;
  const made = `for file in "$3/bin/python" "$3/bin/gepa-client"; do printf ${text} > "$file"; chmod +x "$file"; done`;
  script("python3.11", `[ "$1" = -c ] && echo True && exit\nmkdir -p "$3/bin"\n${made}`);
  expect(await command()).toContain(join(folder, "cache"));
});

it.each(["file", "/dev/null"])(
  "a cache folder below %s, which cannot be made, is named with its variable",
  async (place) => {
    writeFileSync(join(folder, "file"), "");
    vi.stubEnv("XDG_CACHE_HOME", resolve(folder, place));
    expect(await failure(command())).toMatch(
      new RegExp(`cache folder ${resolve(folder, place)}/evolverpc: .*XDG_CACHE_HOME`),
    );
  },
);
