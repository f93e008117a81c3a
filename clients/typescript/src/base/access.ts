/** Who may call: the check of the `Host` header, and the bearer token, compared in constant time. */

import { SetupError } from "./configuration.js";

const LOOPBACK = new Set(["localhost", "127.0.0.1", "[::1]"]);

/** Accept loopback names with any port, the bound address, and `allowed`; a port matters only if `allowed` names it. */
export function hostChecker(bound: string, allowed: readonly string[]): (host: string | null) => boolean {
  const names = new Set([...LOOPBACK, bracketed(bound), ...allowed.map((name) => name.toLowerCase())]);
  return (host) => {
    if (host === null) return false;
    const full = host.trim().toLowerCase();
    return names.has(full) || names.has(full.replace(/:\d+$/, ""));
  };
}

/** Whether an address is a loopback address. */
export function isLoopback(host: string): boolean {
  const name = bracketed(host.toLowerCase());
  return LOOPBACK.has(name) || /^127(\.\d{1,3}){3}$/.test(name);
}

/** Write an address as a URL needs it. */
export function bracketed(host: string): string {
  return host.includes(":") && !host.startsWith("[") ? `[${host}]` : host;
}

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

/** Throws `SetupError`, which names the source, for a value that no header can carry or that is not a token. */
export function checkToken(token: unknown, source: string): asserts token is string {
  if (typeof token === "string" && /^[\x21-\x7e]+$/.test(token)) return;
  throw new SetupError(`${source} must be a token: printable ASCII without spaces, and not empty`);
}
