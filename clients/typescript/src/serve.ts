/** Serves a program over HTTP on Node. */

import type { Server } from "node:http";
import { storeCarrier } from "./carriers.js";
import { withDigest } from "./digest.js";
import { Door } from "./door.js";
import { Endpoint } from "./endpoint.js";
import { hostChecker, isLoopback } from "./hosts.js";
import { type Key, keyFor, needsToken } from "./key.js";
import { listening } from "./node-http.js";
import { ENDPOINT_OPTIONS, type EndpointOptions } from "./options.js";
import { boundTo, type Place, placeOf, urlOf } from "./place.js";
import type { Program } from "./program.js";
import { namesOf, noneInProgram, onlyKnown, SetupError, seconds } from "./setup.js";
import { setupFailure } from "./startup.js";
import { MemoryStore, STORE_OPTIONS, type StoreOptions } from "./store.js";
import { PACKAGE_VERSION } from "./version.js";

/** How long an answer on its way may take to leave, once the server closes. */
const CLOSE_GRACE_MS = 500;
const CLOSE_SWEEP_MS = 10;

const BEHIND_A_SERVER =
  "`gepa-server --command` started this program, to talk to it over stdio: call `serveStdio` in place of `serve`";

export interface ServeOptions extends EndpointOptions, StoreOptions {
  /**
   * The address to bind; 127.0.0.1 when not given. On any other than loopback a token must be given.
   *
   * Where whoever starts the process says by `GEPA_LISTEN` where to listen (`fd:3`, an inherited socket that listens, or
   * `HOST:PORT`), neither this nor `port` may be given.
   */
  host?: string;
  /** 0, when not given, lets the system choose. */
  port?: number;
  /**
   * A file with the bearer token, made with a random one where there is none, and kept; else the token is taken from
   * `GEPA_TOKEN`, else made at random for this start alone.
   */
  tokenFile?: string;
  /** Further `Host` names to answer, beside those of `GEPA_ALLOWED_HOSTS`. */
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

const KNOWN = [
  ...ENDPOINT_OPTIONS,
  ...STORE_OPTIONS,
  ...namesOf<Omit<ServeOptions, keyof EndpointOptions | keyof StoreOptions>>({
    host: 1,
    port: 1,
    tokenFile: 1,
    allowedHosts: 1,
    allowedOrigins: 1,
    json: 1,
    announce: 1,
    ownsProcess: 1,
    drainS: 1,
  }),
];

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

/**
 * Serves a program until it is closed.
 *
 * Rejects with `SetupError` where it cannot start: no program, no seed, no token where one is needed, no such port.
 */
export async function serve<Data, Output>(
  program: Program<Data, Output>,
  options: ServeOptions = {},
): Promise<RunningServer> {
  let key: Key | undefined;
  try {
    onlyKnown(options, KNOWN);
    noneInProgram(Object(program), KNOWN);
    if (process.env.GEPA_STDIO !== undefined) throw new SetupError(BEHIND_A_SERVER);
    const place = placeOf(options);
    key = keyFor(place.host, options.tokenFile);
    const running = await started(program as Program, withDigest(options), key, place);
    if (options.ownsProcess ?? true) running.ownProcess();
    announce(running, key, options);
    return running;
  } catch (error) {
    key?.discard();
    throw setupFailure(error, serve);
  }
}

async function started(program: Program, options: ServeOptions, key: Key, place: Place): Promise<NodeServer> {
  const { allowedOrigins = [] } = options;
  const drainMs = seconds("drainS", options.drainS ?? 30) * 1000;
  const store = new MemoryStore(options);
  const endpoint = await Endpoint.create(program, options, storeCarrier(store));
  let isOurs = hostChecker(place.host, place.allowedHosts);
  const allowsHost = (host: string | null): boolean => isOurs(host);
  const door = new Door(async () => endpoint, { token: key.token, basePath: "", allowsHost, allowedOrigins });
  const server = await listening(door, place);
  const bound = boundTo(server);
  if (place.descriptor !== undefined && bound !== undefined) {
    isOurs = hostChecker(bound, place.allowedHosts);
    if (!key.given && !isLoopback(bound)) {
      server.close();
      throw new SetupError(needsToken(bound));
    }
  }
  return new NodeServer(urlOf(server, place), key, endpoint, store, server, drainMs);
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

  /** The program's name and kind, for people. */
  get programTitle(): string {
    const { name, components } = this.endpoint.discovery.program;
    return `${name} (typescript${components.length === 0 ? ", only scores" : ""})`;
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

function announce(running: NodeServer, key: Key, options: ServeOptions): void {
  const say = options.announce ?? ((line: string) => process.stdout.write(`${line}\n`));
  const { url, instanceId, programTitle } = running;
  if (options.json ?? process.env.GEPA_READY_JSON === "1") {
    const ready = { event: "ready", url, token: key.given ? null : key.token, token_file: key.file ?? null };
    say(JSON.stringify({ ...ready, instance_id: instanceId, pid: process.pid }));
    return;
  }
  const where = key.file === undefined ? "GEPA_TOKEN" : key.file;
  say(`evolverpc ${PACKAGE_VERSION} · ${programTitle} ready on ${url} · token in ${where}`);
}
