/** Serves a program over HTTP on Node. */

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import type { Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { storeCarrier } from "./carriers.js";
import { Door } from "./door.js";
import { Endpoint } from "./endpoint.js";
import { bracketed, hostChecker, isLoopback } from "./hosts.js";
import { listening } from "./node-http.js";
import type { EndpointOptions } from "./options.js";
import type { Program } from "./program.js";
import { MemoryStore, type StoreOptions } from "./store.js";
import { checkToken, randomToken } from "./token.js";
import { PACKAGE_VERSION } from "./version.js";

/** How long an answer on its way may take to leave, once the server closes. */
const CLOSE_GRACE_MS = 500;
const CLOSE_SWEEP_MS = 10;

export interface ServeOptions extends EndpointOptions, StoreOptions {
  /** The address to bind; 127.0.0.1 when not given. On any other than loopback a token must be given. */
  host?: string;
  /** 0, when not given, lets the system choose. */
  port?: number;
  /** A file with the bearer token; else it is taken from `GEPA_TOKEN`, else made at random. */
  tokenFile?: string;
  /** Further `Host` names to answer. */
  allowedHosts?: readonly string[];
  /** Origins of web pages that may call; none when not given. */
  allowedOrigins?: readonly string[];
  /** The ready line as JSON; also with `GEPA_READY_JSON=1`. */
  json?: boolean;
  /** Told the ready line; the standard output when not given. */
  announce?: (line: string) => void;
  /**
   * Whether this process is the server's own: SIGTERM drains it, SIGINT stops it, and a promise of the program's that
   * was rejected unseen is logged instead of ending it. True when not given.
   */
  ownsProcess?: boolean;
  /** Seconds a drain may take; 30 when not given. */
  drainS?: number;
}

/** A server that is listening. */
export interface RunningServer {
  url: string;
  /** The bearer token callers must show. */
  token: string;
  instanceId: string;
  /** Takes no new work, waits for what runs and for its answers to be collected (at most `drainS`), and closes. */
  drain(): Promise<void>;
  /** Closes at once; what runs is cancelled. */
  close(): Promise<void>;
}

/** Serves a program until it is closed. Rejects where it cannot start: no token where one is needed, no seed, no port. */
export async function serve<Data, Output>(
  program: Program<Data, Output>,
  options: ServeOptions = {},
): Promise<RunningServer> {
  const host = options.host ?? "127.0.0.1";
  const key = keyFor(host, options.tokenFile);
  try {
    const store = new MemoryStore(options);
    const endpoint = await Endpoint.create(program as Program, options, storeCarrier(store));
    const door = new Door(async () => endpoint, {
      token: key.token,
      basePath: "",
      allowsHost: hostChecker(host, options.allowedHosts ?? []),
      allowedOrigins: options.allowedOrigins ?? [],
    });
    const server = await listening(door, host, options.port ?? 0);
    const url = `http://${bracketed(host)}:${(server.address() as AddressInfo).port}/rpc`;
    const running = new NodeServer(url, key, endpoint, store, server, (options.drainS ?? 30) * 1000);
    if (options.ownsProcess ?? true) running.ownProcess();
    announce(running, key, endpoint.discovery.program.name, options);
    return running;
  } catch (error) {
    key.discard();
    throw error;
  }
}

/** The token, and where a caller on this machine can read it. */
interface Key {
  token: string;
  /** Undefined where it came from the environment. */
  file?: string;
  /** True where the operator brought it. */
  given: boolean;
  discard(): void;
}

function keyFor(host: string, tokenFile: string | undefined): Key {
  const fromEnvironment = process.env.GEPA_TOKEN;
  // The program and what it starts have no business with it.
  delete process.env.GEPA_TOKEN;
  if (tokenFile !== undefined) {
    const token = readFileSync(tokenFile, "utf8").trim();
    checkToken(token);
    return { token, file: tokenFile, given: true, discard: () => {} };
  }
  if (fromEnvironment) {
    checkToken(fromEnvironment);
    return { token: fromEnvironment, given: true, discard: () => {} };
  }
  if (!isLoopback(host)) {
    throw new Error(`a server on ${host} needs a token of yours: set \`tokenFile\` or the environment's GEPA_TOKEN`);
  }
  const token = randomToken();
  const folder = mkdtempSync(join(tmpdir(), "evolverpc-"));
  const file = join(folder, "token");
  writeFileSync(file, `${token}\n`, { mode: 0o600 });
  return { token, file, given: false, discard: () => rmSync(folder, { recursive: true, force: true }) };
}

class NodeServer implements RunningServer {
  readonly #disown: (() => void)[] = [];
  #closed: Promise<void> | undefined;

  constructor(
    readonly url: string,
    private readonly key: Key,
    private readonly endpoint: Endpoint,
    private readonly store: MemoryStore,
    private readonly server: Server,
    private readonly drainMs: number,
  ) {}

  get token(): string {
    return this.key.token;
  }

  get instanceId(): string {
    return this.endpoint.discovery.server.instance_id;
  }

  async drain(): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    const over = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, this.drainMs);
    });
    await Promise.race([this.endpoint.drain(), over]);
    clearTimeout(timer);
    await this.close();
  }

  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  ownProcess(): void {
    const on = (event: string, action: (...said: unknown[]) => void): void => {
      process.on(event, action);
      this.#disown.push(() => process.off(event, action));
    };
    on("SIGTERM", () => this.drain().then(() => process.exit(0)));
    on("SIGINT", () => this.close().then(() => process.exit(130)));
    on("unhandledRejection", (error) => console.error("evolverpc: the program left a rejected promise alone", error));
    on("exit", this.key.discard);
  }

  async #close(): Promise<void> {
    for (const disown of this.#disown) disown();
    this.endpoint.draining = true;
    this.store.calls.cancelAll();
    const closed = new Promise((resolve) => this.server.close(resolve));
    // A connection becomes idle when its last answer has left.
    const sweep = setInterval(() => this.server.closeIdleConnections(), CLOSE_SWEEP_MS);
    const force = setTimeout(() => this.server.closeAllConnections(), CLOSE_GRACE_MS);
    await closed;
    clearInterval(sweep);
    clearTimeout(force);
    this.key.discard();
  }
}

function announce(running: RunningServer, key: Key, program: string, options: ServeOptions): void {
  const say = options.announce ?? ((line: string) => process.stdout.write(`${line}\n`));
  const { url, instanceId } = running;
  if (options.json ?? process.env.GEPA_READY_JSON === "1") {
    const ready = { event: "ready", url, token: key.given ? null : key.token, token_file: key.file ?? null };
    say(JSON.stringify({ ...ready, instance_id: instanceId, pid: process.pid }));
    return;
  }
  const where = key.file === undefined ? "GEPA_TOKEN" : key.file;
  say(`evolverpc ${PACKAGE_VERSION} · ${program} (typescript) ready on ${url} · token in ${where}`);
}
