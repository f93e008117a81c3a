/** The bearer token of a server on Node: given by its operator, or random and written to a file that its owner can read. */

import { execFileSync } from "node:child_process";
import { randomBytes, randomUUID } from "node:crypto";
import {
  appendFileSync,
  existsSync,
  linkSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join, resolve } from "node:path";
import { checkToken, isLoopback } from "../base/access.js";
import { SetupError } from "../base/configuration.js";

export interface ServerToken {
  token: string;
  /** The file that holds it; undefined if it came from the environment. */
  file?: string;
  /** True if the operator supplied it. */
  given: boolean;
  /** The file of the git repository around `file` that now has git ignore it; undefined if nothing was needed. */
  excludedBy?: string | undefined;
  discard(): void;
}

/**
 * Return the token of `tokenFile`, else that of GEPA_TOKEN, else a random one. Throws `SetupError` if none is usable.
 *
 * A missing `tokenFile` is created, readable by its owner only, and kept: the next start has the same token. If it is in a
 * git repository, git is made to ignore it.
 */
export function serverToken(host: string, tokenFile: string | undefined): ServerToken {
  const fromEnvironment = process.env.GEPA_TOKEN;
  // The program and its children must not see it.
  delete process.env.GEPA_TOKEN;
  if (tokenFile !== undefined) {
    const excludedBy = makeUnlessThere(tokenFile) ? excluded(tokenFile) : undefined;
    const token = contentOf(tokenFile).trim();
    checkToken(token, `the content of the token file ${tokenFile}`);
    return { token, file: tokenFile, given: true, excludedBy, discard: () => {} };
  }
  if (fromEnvironment) {
    checkToken(fromEnvironment, "GEPA_TOKEN");
    return { token: fromEnvironment, given: true, discard: () => {} };
  }
  if (!isLoopback(host)) {
    throw new SetupError(tokenRequired(host));
  }
  const token = randomToken();
  const folder = mkdtempSync(join(tmpdir(), "evolverpc-"));
  const file = join(folder, "token");
  writeFileSync(file, `${token}\n`, { mode: 0o600 });
  return { token, file, given: false, discard: () => rmSync(folder, { recursive: true, force: true }) };
}

/** Make a random token of 256 bits. */
function randomToken(): string {
  return randomBytes(32).toString("hex");
}

/** The message for a server that other machines can reach and that was given no token. */
export function tokenRequired(host: string): string {
  return `a server on ${host} needs a token of yours: set \`tokenFile\` or the environment variable GEPA_TOKEN`;
}

/**
 * Create the file atomically: another server that starts at the same time never reads half of it. Return whether it was
 * created.
 */
function makeUnlessThere(tokenFile: string): boolean {
  if (existsSync(tokenFile)) return false;
  const draft = join(dirname(tokenFile), `.token-${randomUUID()}`);
  try {
    writeFileSync(draft, `${randomToken()}\n`, { mode: 0o600, flag: "wx" });
    linkSync(draft, tokenFile);
    return true;
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (code !== "EEXIST") throw new SetupError(`\`tokenFile\` ${tokenFile} cannot be created (${message})`);
    return false;
  } finally {
    rmSync(draft, { force: true });
  }
}

function excluded(tokenFile: string): string | undefined {
  try {
    return excludeFromGit(tokenFile);
  } catch (error) {
    rmSync(tokenFile, { force: true }); // a next start would find it, and take it for the user's own
    throw new SetupError(
      `\`tokenFile\` ${tokenFile} is in a git repository and would be committed (${(error as Error).message}): ` +
        "name a file outside of the repository",
    );
  }
}

function contentOf(tokenFile: string): string {
  try {
    return readFileSync(tokenFile, "utf8");
  } catch (error) {
    const { message } = error as Error;
    throw new SetupError(
      `\`tokenFile\` cannot be read (${message}): write a token there, or leave it out for a random one`,
    );
  }
}

/** Variables that name a repository, which a process inherits if a hook started it. */
const OF_ANOTHER_REPOSITORY = {
  GIT_DIR: undefined,
  GIT_WORK_TREE: undefined,
  GIT_COMMON_DIR: undefined,
  GIT_INDEX_FILE: undefined,
};

const SPECIAL_IN_PATTERNS = /[\\*?[ ]/g;

/**
 * Have git ignore a file by a line in `info/exclude` and return the path of that; undefined if nothing was written: the
 * file is in no working tree that git accepts, or ignored already. Throws if `info/exclude` cannot be written, or a
 * line of a `.gitignore` includes the file, which overrides it; nothing is written then.
 */
function excludeFromGit(file: string): string | undefined {
  const folder = dirname(resolve(file));
  const answer = git(folder, "rev-parse", "--show-toplevel", "--show-prefix", "--git-path", "info/exclude");
  const isIgnored = () => git(folder, "check-ignore", "--quiet", "--", basename(file)) !== undefined;
  if (answer === undefined || isIgnored()) return undefined;
  const [, prefix, exclude] = answer.split("\n") as [string, string, string];
  const path = resolve(folder, exclude);
  mkdirSync(dirname(path), { recursive: true });
  const inside = `${prefix}${basename(file)}`.replace(SPECIAL_IN_PATTERNS, "\\$&");
  const size = statSync(path, { throwIfNoEntry: false })?.size ?? 0;
  appendFileSync(path, `\n/${inside}\n`);
  if (!isIgnored()) {
    truncateSync(path, size);
    throw new Error(`a line of a .gitignore that begins with ! includes ${basename(file)}: remove it`);
  }
  return path;
}

/** Return what git prints; undefined if it fails, or if there is no git. */
function git(cwd: string, ...words: string[]): string | undefined {
  const settings = ["-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false"];
  const env = { ...process.env, ...OF_ANOTHER_REPOSITORY };
  try {
    return execFileSync("git", [...settings, ...words], { cwd, env, stdio: ["ignore", "pipe", "ignore"] }).toString();
  } catch {
    return undefined;
  }
}
