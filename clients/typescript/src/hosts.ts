/** Which `Host` a request may name: a web page can point its own name at this machine, but not send ours. */

const LOOPBACK = new Set(["localhost", "127.0.0.1", "[::1]"]);

/** Loopback names with any port, the address that is bound, and those allowed; ports count only where `allowed` has one. */
export function hostChecker(bound: string, allowed: readonly string[]): (host: string | null) => boolean {
  const names = new Set([...LOOPBACK, bracketed(bound), ...allowed.map((name) => name.toLowerCase())]);
  return (host) => {
    if (host === null) return false;
    const full = host.trim().toLowerCase();
    return names.has(full) || names.has(full.replace(/:\d+$/, ""));
  };
}

/** Whether an address is this machine's own. */
export function isLoopback(host: string): boolean {
  const name = bracketed(host.toLowerCase());
  return LOOPBACK.has(name) || /^127(\.\d{1,3}){3}$/.test(name);
}

/** An address as it stands in a URL. */
export function bracketed(host: string): string {
  return host.includes(":") && !host.startsWith("[") ? `[${host}]` : host;
}
