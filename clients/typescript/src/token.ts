/** The bearer token: compared in a time that says nothing about it. */

import { SetupError } from "./setup.js";

const encoder = new TextEncoder();

/** Carries the token where `Authorization` is for somebody who stands between. */
export const TOKEN_HEADER = "x-gepa-token";

/** Whether a request carries the token: in `X-Gepa-Token` where that header is there, else in `Authorization`. */
export function isAuthorized(header: (name: string) => string | null, token: string): boolean {
  const given = header(TOKEN_HEADER)?.trim() ?? /^bearer +(\S+)\s*$/i.exec(header("authorization") ?? "")?.[1];
  return sameText(given ?? "", token);
}

/** Takes as long as `expected` is, wherever the two differ. */
function sameText(given: string, expected: string): boolean {
  const left = encoder.encode(given);
  const right = encoder.encode(expected);
  let difference = left.length ^ right.length;
  for (let at = 0; at < right.length; at++) difference |= (left[at] ?? 0) ^ (right[at] as number);
  return difference === 0;
}

/** A token nobody can guess. */
export function randomToken(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(32));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Throws `SetupError`, naming where it came from, for a token that no header could carry, or that is none. */
export function checkToken(token: unknown, source: string): asserts token is string {
  if (typeof token === "string" && /^[\x21-\x7e]+$/.test(token)) return;
  throw new SetupError(`${source} must be a token: printable ASCII without spaces, and not empty`);
}
