/** The bearer token of a server on Node: given by its operator, or random and written to a file that its owner can read. */

import { existsSync, linkSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { SetupError } from "./configuration.js";
import { isLoopback } from "./hosts.js";
import { checkToken, randomToken } from "./token.js";

export interface ServerToken {
  token: string;
  /** The file that holds it; undefined if it came from the environment. */
  file?: string;
  /** True if the operator supplied it. */
  given: boolean;
  discard(): void;
}

/**
 * Return the token of `tokenFile`, else that of GEPA_TOKEN, else a random one. Throws `SetupError` if none is usable.
 *
 * A missing `tokenFile` is created, readable by its owner only, and kept: the next start has the same token.
 */
export function serverToken(host: string, tokenFile: string | undefined): ServerToken {
  const fromEnvironment = process.env.GEPA_TOKEN;
  // The program and its children must not see it.
  delete process.env.GEPA_TOKEN;
  if (tokenFile !== undefined) {
    makeUnlessThere(tokenFile);
    const token = contentOf(tokenFile).trim();
    checkToken(token, `the content of the token file ${tokenFile}`);
    return { token, file: tokenFile, given: true, discard: () => {} };
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

/** The message for a server that other machines can reach and that was given no token. */
export function tokenRequired(host: string): string {
  return `a server on ${host} needs a token of yours: set \`tokenFile\` or the environment variable GEPA_TOKEN`;
}

/** Create the file atomically: another server that starts at the same time never reads half of it. */
function makeUnlessThere(tokenFile: string): void {
  if (existsSync(tokenFile)) return;
  const draft = join(dirname(tokenFile), `.token-${randomToken()}`);
  try {
    writeFileSync(draft, `${randomToken()}\n`, { mode: 0o600, flag: "wx" });
    linkSync(draft, tokenFile);
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (code !== "EEXIST") throw new SetupError(`\`tokenFile\` ${tokenFile} cannot be created (${message})`);
  } finally {
    rmSync(draft, { force: true });
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
