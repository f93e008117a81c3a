/** Keep a file of a working tree out of git. */

import { execFileSync } from "node:child_process";
import { appendFileSync, mkdirSync, statSync, truncateSync } from "node:fs";
import { basename, dirname, resolve } from "node:path";

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
export function excludeFromGit(file: string): string | undefined {
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
