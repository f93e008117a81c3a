/** Check the `Host` header: a web page can point its own name at this machine, but cannot send one of ours. */

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
