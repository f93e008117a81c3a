/** Find the optimizer, the command of the Python package, or set it up once from the wheel that this package carries. */

import { execFile } from "node:child_process";
import { randomUUID } from "node:crypto";
import {
  accessSync,
  constants,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  symlinkSync,
} from "node:fs";
import { rm } from "node:fs/promises";
import { homedir } from "node:os";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { SetupError } from "../base/configuration.js";
import { PACKAGE_VERSION } from "../base/version.js";
import { sha256 } from "../server/node-process.js";

const COMMAND = "gepa-client"; // its other name, `evolverpc`, may be this package's own command

const PACKAGE = fileURLToPath(new URL("../../", import.meta.url));
const REPOSITORY = join(PACKAGE, "..", "..");
const PYTHONS = ["python3", "python3.14", "python3.13", "python3.12", "python3.11", "python"];
const IS_USABLE = "import sys, venv, ensurepip; print(sys.version_info >= (3, 11))";
const TAIL_LINES = 40;

const INSTALL_UV = "curl -LsSf https://astral.sh/uv/install.sh | sh";

/** What is installed: `words` for pip, and a key that differs for other contents. */
interface Source {
  words: string[];
  constraints: string;
  key: string;
}

/**
 * Return the command of an optimizer of this package's version: `named` or that of `GEPA_CLIENT`, else the one on PATH, else
 * that of the clone which the package was installed from, else one that is set up in the cache folder. It is found there the
 * next time, and by other processes.
 *
 * Throws `SetupError` if the named one has another version, or none can be set up; nothing is left behind then.
 *
 * `clone`: for tests.
 */
export async function optimizerCommand(
  named = process.env.GEPA_CLIENT,
  signal?: AbortSignal,
  clone = REPOSITORY,
): Promise<string> {
  if (named !== undefined && named !== "") {
    const version = await versionOf(named);
    if (version === PACKAGE_VERSION) return named;
    const fault = version === undefined ? "does not run" : `has version ${version}`;
    throw new SetupError(
      `the optimizer ${named} ${fault}, and evolverpc ${PACKAGE_VERSION} needs its own version: without the option ` +
        "`optimizer` and the variable GEPA_CLIENT it sets one up itself",
    );
  }
  const version = await versionOf(COMMAND);
  if (version === PACKAGE_VERSION) return COMMAND;
  if (version !== undefined) {
    console.error(`evolverpc: ${COMMAND} on PATH has version ${version}, not ${PACKAGE_VERSION}: another one is used`);
  }
  const ofClone = join(clone, ".venv", "bin", COMMAND);
  if (existsSync(ofClone) && (await versionOf(ofClone)) === PACKAGE_VERSION) return ofClone;
  return cached(sourceOf(), signal);
}

async function cached(source: Source, signal: AbortSignal | undefined): Promise<string> {
  const cache = join(process.env.XDG_CACHE_HOME || join(homedir(), ".cache"), "evolverpc");
  const link = join(cache, `optimizer-${PACKAGE_VERSION}-${source.key}`);
  const command = join(link, "bin", COMMAND);
  if (existsSync(command) && (await versionOf(command)) === PACKAGE_VERSION) return realpathSync(command);
  try {
    mkdirSync(cache, { recursive: true });
    accessSync(cache, constants.W_OK);
  } catch (error) {
    throw new SetupError(
      `the optimizer cannot be set up in the cache folder ${cache}: ${(error as Error).message}. Set the variable ` +
        "XDG_CACHE_HOME to a folder that can be written to",
    );
  }
  // Programs in it name its path, so it is made where it stays; the link is made when it is complete.
  const folder = `${link}-${randomUUID().slice(0, 8)}`;
  const commands = await installCommands(source, folder);
  console.error(`evolverpc: setting up the optimizer, once, in ${folder} (about a minute)`);
  try {
    for (const words of commands) await run(words, signal);
  } catch (error) {
    await rm(folder, { recursive: true, force: true });
    throw error;
  }
  await publish(folder, link);
  return realpathSync(command);
}

/** Let the link name the folder, unless another process was first. */
async function publish(folder: string, link: string): Promise<void> {
  const own = `${folder}.link`;
  symlinkSync(basename(folder), own);
  if ((await versionOf(join(link, "bin", COMMAND))) === PACKAGE_VERSION) {
    await Promise.all([folder, own].map((path) => rm(path, { recursive: true })));
  } else {
    renameSync(own, link);
  }
}

/** The packed wheel; in a clone of the repository, the clone itself. */
function sourceOf(): Source {
  if (existsSync(join(REPOSITORY, "gepa_client")) && existsSync(join(REPOSITORY, "pyproject.toml"))) {
    const words = ["--editable", `${REPOSITORY}[client,server]`];
    return { words, constraints: join(REPOSITORY, "constraints.txt"), key: `clone-${keyOf(REPOSITORY)}` };
  }
  const folder = join(PACKAGE, "optimizer");
  const wheel = existsSync(folder) ? readdirSync(folder).find((name) => name.endsWith(".whl")) : undefined;
  if (wheel === undefined) {
    throw new SetupError(
      `there is no optimizer on PATH, and ${PACKAGE} holds no wheel of it: install the package again`,
    );
  }
  const path = join(folder, wheel);
  const constraints = join(folder, "constraints.txt");
  return { words: [`${path}[client,server]`], constraints, key: keyOf(readFileSync(path)) };
}

function keyOf(content: string | Uint8Array): string {
  return sha256(content).slice(0, 12);
}

/** The commands that make the folder, with the first of uv, Python's venv and pipx that is there. */
async function installCommands({ words, constraints }: Source, folder: string): Promise<string[][]> {
  const python = join(folder, "bin", "python");
  if ((await outcome(["uv", "--version"])).succeeded) {
    return [
      ["uv", "venv", "--quiet", "--no-project", "--python", ">=3.11", folder],
      ["uv", "pip", "install", "--quiet", "--python", python, "--constraint", constraints, ...words],
    ];
  }
  for (const candidate of PYTHONS) {
    const { succeeded, output } = await outcome([candidate, "-c", IS_USABLE]);
    if (!succeeded || output.trim() !== "True") continue;
    const pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    return [
      [candidate, "-m", "venv", folder],
      [...pip, "--constraint", constraints, ...words],
    ];
  }
  if ((await outcome(["pipx", "--version"])).succeeded) {
    const places = [`PIPX_HOME=${folder}`, `PIPX_BIN_DIR=${join(folder, "bin")}`];
    return [["env", ...places, "pipx", "install", "--quiet", `--pip-args=--constraint "${constraints}"`, ...words]];
  }
  throw new SetupError(
    `the optimizer needs uv, Python 3.11 or newer with venv, or pipx on PATH, and none is there. Install uv: ${INSTALL_UV}`,
  );
}

async function versionOf(command: string): Promise<string | undefined> {
  const { succeeded, output } = await outcome([command, "--version"]);
  return succeeded ? /^evolverpc (\S+)/m.exec(output)?.[1] : undefined;
}

async function run(words: string[], signal: AbortSignal | undefined): Promise<void> {
  const { succeeded, output } = await outcome(words, signal);
  signal?.throwIfAborted();
  if (succeeded) return;
  const end = output.trim().split("\n").slice(-TAIL_LINES).join("\n");
  throw new SetupError(
    `the optimizer could not be set up, and nothing of it was kept: \`${words.join(" ")}\` failed:\n${end}\n` +
      "It needs the package index, once: run this again when that answers, or name an installed one by the option " +
      "`optimizer` or the variable GEPA_CLIENT.",
  );
}

/** Whether a command succeeds, and what it prints. */
function outcome([program = "", ...words]: string[], signal?: AbortSignal) {
  return new Promise<{ succeeded: boolean; output: string }>((resolve) => {
    const child = execFile(program, words, { signal, maxBuffer: Infinity }, (error, stdout, stderr) => {
      resolve({ succeeded: error === null, output: stdout + stderr || (error?.message ?? "") });
    });
    child.stdin?.end();
  });
}
