/** The listen address of a server on Node, from its options or from `GEPA_LISTEN`. */

import { readFileSync, readlinkSync } from "node:fs";
import type { Server } from "node:http";
import type { AddressInfo } from "node:net";
import { anyOf, type ReadBy, SetupError, wholeNumber } from "../base/configuration.js";
import { bracketed } from "../base/hosts.js";

const LOOPBACK = "127.0.0.1";

export interface ListenAddress {
  /** The address to bind; for an inherited socket `localhost`, as its own address is known only when it listens. */
  host: string;
  port: number;
  /** An inherited socket that listens already. */
  descriptor?: number;
  /** Further `Host` names to accept. */
  allowedHosts: readonly string[];
}

/** The options that determine the listen address. */
export const LISTEN_OPTIONS = {
  /**
   * The address to bind; default 127.0.0.1. An address other than loopback needs a given token.
   *
   * If the environment variable `GEPA_LISTEN` gives the listen address (`fd:3`, an inherited listening socket, or
   * `HOST:PORT`), neither this nor `port` may be given.
   */
  host: anyOf<string | undefined>(undefined),
  /** Default 0: the system chooses a free port. */
  port: (given: number | undefined, name: string) =>
    given === undefined ? given : wholeNumber(0, 0, 65_535)(given, name),
  /** Further `Host` names to accept, besides those of `GEPA_ALLOWED_HOSTS`. */
  allowedHosts: anyOf<readonly string[]>([]),
};

/** Read the options and the environment variables, which are removed. Throws `SetupError` if they contradict each other. */
export function listenAddressOf(options: Partial<ReadBy<typeof LISTEN_OPTIONS>>): ListenAddress {
  const { GEPA_LISTEN: where, GEPA_ALLOWED_HOSTS: hosts = "" } = process.env;
  // The program and its children must not see them.
  delete process.env.GEPA_LISTEN;
  delete process.env.GEPA_ALLOWED_HOSTS;
  const further = hosts.split(",").map((host) => host.trim());
  const allowedHosts = [...(options.allowedHosts ?? []), ...further.filter((host) => host !== "")];
  if (where === undefined) {
    return { host: options.host ?? LOOPBACK, port: options.port ?? 0, allowedHosts };
  }
  if (options.host !== undefined || options.port !== undefined) {
    throw new SetupError("GEPA_LISTEN is set, and `host` or `port` is given: remove one of them");
  }
  const inherited = /^fd:(\d{1,9})$/.exec(where)?.[1];
  if (inherited !== undefined) return { host: "localhost", port: 0, descriptor: Number(inherited), allowedHosts };
  const [, bracket, plain, digits] = /^(?:\[([^\]]+)\]|([^:]+)):(\d{1,5})$/.exec(where) ?? [];
  const host = bracket ?? plain;
  if (host === undefined || Number(digits) > 65_535) {
    throw new SetupError(`GEPA_LISTEN=${where}: write fd:3, HOST:PORT or [HOST]:PORT`);
  }
  return { host, port: Number(digits), allowedHosts };
}

/** The bound address of a listening server; undefined for a unix socket. */
export function boundAddress(server: Server): string | undefined {
  return (server.address() as AddressInfo | null)?.address;
}

/** The URL of the methods on a listening server. */
export function urlOf(server: Server, address: ListenAddress): string {
  const bound = server.address() as AddressInfo | null;
  if (bound === null) return `http+unix://${encodeURIComponent(pathOf(address.descriptor))}/rpc`;
  return `http://${bracketed(address.descriptor === undefined ? address.host : bound.address)}:${bound.port}/rpc`;
}

/** The path of a unix socket, which Node does not expose; empty if the system does not either. */
function pathOf(descriptor: number | undefined): string {
  try {
    const inode = /\d+/.exec(readlinkSync(`/proc/self/fd/${descriptor}`))?.[0];
    // Num RefCount Protocol Flags Type St Inode Path
    const lines = readFileSync("/proc/net/unix", "utf8").split("\n");
    return lines.map((line) => /^(?:\S+ +){6}(\d+) (.+)$/.exec(line)).find((row) => row?.[1] === inode)?.[2] ?? "";
  } catch {
    return ""; // not Linux
  }
}
