/** Where a server on Node listens: as its options say, or whoever started the process, by `GEPA_LISTEN`. */

import { readFileSync, readlinkSync } from "node:fs";
import type { Server } from "node:http";
import type { AddressInfo } from "node:net";
import { bracketed } from "./hosts.js";
import { SetupError, wholeNumber } from "./setup.js";

const LOOPBACK = "127.0.0.1";

export interface Place {
  /** The address to bind; loopback where the socket is inherited, whose own is known once it listens. */
  host: string;
  port: number;
  /** An inherited socket that listens already. */
  descriptor?: number;
  /** Further `Host` names to answer. */
  allowedHosts: readonly string[];
}

/** What says where to listen. */
export interface PlaceOptions {
  host?: string;
  port?: number;
  allowedHosts?: readonly string[];
}

/** Reads the options and the variables, which are taken out of the environment. Throws `SetupError` for contradictions. */
export function placeOf(options: PlaceOptions): Place {
  const { GEPA_LISTEN: where, GEPA_ALLOWED_HOSTS: hosts = "" } = process.env;
  // The program and what it starts have no business with them.
  delete process.env.GEPA_LISTEN;
  delete process.env.GEPA_ALLOWED_HOSTS;
  const further = hosts.split(",").map((host) => host.trim());
  const allowedHosts = [...(options.allowedHosts ?? []), ...further.filter((host) => host !== "")];
  if (where === undefined) {
    const port = wholeNumber("port", options.port ?? 0, 0, 65_535);
    return { host: options.host ?? LOOPBACK, port, allowedHosts };
  }
  if (options.host !== undefined || options.port !== undefined) {
    throw new SetupError("GEPA_LISTEN is set, and `host` or `port` given: leave one of them out");
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

/** The address that a server which listens is bound to; undefined for a unix socket. */
export function boundTo(server: Server): string | undefined {
  return (server.address() as AddressInfo | null)?.address;
}

/** The URL of the methods on a server that listens. */
export function urlOf(server: Server, place: Place): string {
  const address = server.address() as AddressInfo | null;
  if (address === null) return `http+unix://${encodeURIComponent(pathOf(place.descriptor))}/rpc`;
  return `http://${bracketed(place.descriptor === undefined ? place.host : address.address)}:${address.port}/rpc`;
}

/** The path of a unix socket, which Node does not tell; empty where the system does not either. */
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
