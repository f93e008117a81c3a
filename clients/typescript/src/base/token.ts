/** The bearer token, compared in constant time. */

import { SetupError } from "./configuration.js";

const encoder = new TextEncoder();

/** Carries the token if a proxy uses `Authorization` for itself. */
export const TOKEN_HEADER = "x-gepa-token";

/** Whether a request carries the token: in `X-Gepa-Token` if that header is present, else in `Authorization`. */
export function isAuthorized(header: (name: string) => string | null, token: string): boolean {
  const given = header(TOKEN_HEADER)?.trim() ?? /^bearer +(\S+)\s*$/i.exec(header("authorization") ?? "")?.[1];
  return sameText(given ?? "", token);
}

/** Compare in a time that depends on the length of `expected` only. */
function sameText(given: string, expected: string): boolean {
  const left = encoder.encode(given);
  const right = encoder.encode(expected);
  let difference = left.length ^ right.length;
  for (let at = 0; at < right.length; at++) difference |= (left[at] ?? 0) ^ (right[at] as number);
  return difference === 0;
}

/** Make a random token of 256 bits. */
export function randomToken(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(32));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Throws `SetupError`, which names the source, for a value that no header can carry or that is not a token. */
export function checkToken(token: unknown, source: string): asserts token is string {
  if (typeof token === "string" && /^[\x21-\x7e]+$/.test(token)) return;
  throw new SetupError(`${source} must be a token: printable ASCII without spaces, and not empty`);
}
