/** The bearer token of a server on Node: given by its operator, or made here and left where its owner can read it. */

import { existsSync, linkSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { isLoopback } from "./hosts.js";
import { SetupError } from "./setup.js";
import { checkToken, randomToken } from "./token.js";

export interface Key {
  token: string;
  /** Where a caller on this machine can read it; undefined where it came from the environment. */
  file?: string;
  /** True where the operator brought it. */
  given: boolean;
  discard(): void;
}

/**
 * The token of `tokenFile`, else that of GEPA_TOKEN, else a random one. Throws `SetupError` where none will do.
 *
 * A `tokenFile` that is not there is made, for its owner alone, and stays: the next start has the same token.
 */
export function keyFor(host: string, tokenFile: string | undefined): Key {
  const fromEnvironment = process.env.GEPA_TOKEN;
  // The program and what it starts have no business with it.
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
    throw new SetupError(needsToken(host));
  }
  const token = randomToken();
  const folder = mkdtempSync(join(tmpdir(), "evolverpc-"));
  const file = join(folder, "token");
  writeFileSync(file, `${token}\n`, { mode: 0o600 });
  return { token, file, given: false, discard: () => rmSync(folder, { recursive: true, force: true }) };
}

/** What to tell whoever serves to others without a token that was given. */
export function needsToken(host: string): string {
  return `a server on ${host} needs a token of yours: set \`tokenFile\` or the environment's GEPA_TOKEN`;
}

/** The file appears with its whole content: another server that starts at the same time never reads half of it. */
function makeUnlessThere(tokenFile: string): void {
  if (existsSync(tokenFile)) return;
  const draft = join(dirname(tokenFile), `.token-${randomToken()}`);
  try {
    writeFileSync(draft, `${randomToken()}\n`, { mode: 0o600, flag: "wx" });
    linkSync(draft, tokenFile);
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (code !== "EEXIST") throw new SetupError(`\`tokenFile\` ${tokenFile} cannot be made (${message})`);
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
