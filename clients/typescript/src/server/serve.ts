/** Serves a program over HTTP on Node. */

import type { Server } from "node:http";
import { resolve } from "node:path";
import { hostChecker, isLoopback } from "../base/access.js";
import { anyOf, type OptionsOf, type ReadBy, readKnownOptions, SetupError, seconds } from "../base/configuration.js";
import { ENDPOINT_OPTIONS } from "../base/options.js";
import { runAfter } from "../base/runtime.js";
import { PACKAGE_VERSION } from "../base/version.js";
import type { DiscoverResult } from "../generated/types.js";
import { isBatchProgram, type Program } from "../program/program.js";
import { Dispatcher } from "./dispatcher.js";
import { HttpRouter, httpTransport } from "./handler.js";
import { boundAddress, LISTEN_OPTIONS, type ListenAddress, listen, listenAddressOf, urlOf } from "./node-http.js";
import { asSetupError, captureOutput, digestOfScript } from "./node-process.js";
import { MemoryStore, STORE_OPTIONS } from "./store.js";
import { type ServerToken, serverToken, tokenRequired } from "./token-file.js";

/** How long a response may take to be sent after the server closes. */
const CLOSE_GRACE_MS = 500;
const CLOSE_SWEEP_MS = 10;

const BEHIND_A_SERVER =
  "`evolverpc serve --command` started this program and uses stdio: call `serveStdio` instead of `serve`";

const WITHOUT_SCORE =
  "evolverpc: warning: the program has no `score(example, output)`: write this function, or name a server that " +
  "scores by `evolverpc optimize --score-with URL`";

const SERVE_OPTIONS = {
  ...ENDPOINT_OPTIONS,
  ...STORE_OPTIONS,
  ...LISTEN_OPTIONS,
  /**
   * A file with the bearer token; created with a random one if it does not exist, and kept. Without it the token is
   * that of `GEPA_TOKEN`, else a random one for this start only.
   */
  tokenFile: anyOf<string | undefined>(undefined),
  /** Origins of web pages that may call; default none. */
  allowedOrigins: anyOf<readonly string[]>([]),
  /** Print the ready line as JSON; also with `GEPA_READY_JSON=1`. */
  json: anyOf<boolean | undefined>(undefined),
  /** Receives the ready line; default: the standard output, which gets the next command too. */
  announce: anyOf<((line: string) => void) | undefined>(undefined),
  /**
   * Whether the server owns this process: SIGTERM drains it, SIGINT stops it, and an unhandled rejection of the program
   * is logged instead of ending it. Default true.
   */
  ownsProcess: anyOf(true),
  /** Seconds that a drain may take; default 30. */
  drainS: seconds(30),
};

export type ServeOptions = OptionsOf<typeof SERVE_OPTIONS>;
type ServeSettings = ReadBy<typeof SERVE_OPTIONS>;

/** A server that is listening. */
export interface RunningServer {
  url: string;
  /** The bearer token that callers must send. */
  token: string;
  instanceId: string;
  /** Accept no new work, wait (at most `drainS`) until running work ends and its answers are collected, then close. */
  drain(): Promise<void>;
  /** Close at once; running work is cancelled. */
  close(): Promise<void>;
}

/**
 * Serve a program over HTTP until the server is closed.
 *
 * Rejects with `SetupError` if it cannot start: no program, no seed, a missing token, a port in use.
 */
export async function serve<Data, Output, Component extends string = string>(
  program: Program<Data, Output, Component>,
  options: ServeOptions = {},
): Promise<RunningServer> {
  let key: ServerToken | undefined;
  try {
    const settings = readKnownOptions(program, options, SERVE_OPTIONS);
    if (process.env.GEPA_STDIO !== undefined) throw new SetupError(BEHIND_A_SERVER);
    const address = listenAddressOf(settings);
    key = serverToken(address.host, settings.tokenFile);
    if (key.excludedBy !== undefined) {
      console.error(
        `evolverpc: the new token file ${key.file} is in a git repository: a line in ${key.excludedBy} makes git ignore ` +
          "it, so that it is not committed",
      );
    }
    const { running, discovery } = await start(program as Program, settings, key, address);
    captureOutput();
    announce(running, discovery, key, settings);
    if (program.score === undefined && !isBatchProgram(program as Program)) console.error(WITHOUT_SCORE);
    return running;
  } catch (error) {
    key?.discard();
    throw asSetupError(error, serve);
  }
}

async function start(
  program: Program,
  given: ServeSettings,
  key: ServerToken,
  address: ListenAddress,
): Promise<{ running: RunningServer; discovery: DiscoverResult }> {
  const settings = { ...given, digest: given.digest ?? digestOfScript() };
  const { allowedOrigins } = settings;
  const store = new MemoryStore(settings);
  const dispatcher = await Dispatcher.create(program, settings, httpTransport(store));
  const { discovery } = dispatcher;
  let isOurs = hostChecker(address.host, address.allowedHosts);
  const allowsHost = (host: string | null): boolean => isOurs(host);
  const router = new HttpRouter(async () => dispatcher, { token: key.token, basePath: "", allowsHost, allowedOrigins });
  const server = await listen(router, address);
  const bound = boundAddress(server);
  if (address.descriptor !== undefined && bound !== undefined) {
    isOurs = hostChecker(bound, address.allowedHosts);
    if (!key.given && !isLoopback(bound)) {
      server.close();
      throw new SetupError(tokenRequired(bound));
    }
  }
  const end = async (): Promise<void> => {
    disown?.();
    dispatcher.draining = true;
    store.calls.cancelAll();
    await closeServer(server);
    key.discard();
  };
  let ended: Promise<void> | undefined;
  const close = (): Promise<void> => {
    ended ??= end();
    return ended;
  };
  const drain = async (): Promise<void> => {
    await Promise.race([dispatcher.drain(), new Promise<void>((resolve) => runAfter(settings.drainS, resolve))]);
    await close();
  };
  const instanceId = discovery.server.instance_id;
  const running = { url: urlOf(server, address), token: key.token, instanceId, drain, close };
  const disown = settings.ownsProcess ? ownProcess(running, key) : undefined;
  return { running, discovery };
}

/** Let the process end as its server does; returns a function that undoes that. */
function ownProcess({ drain, close }: RunningServer, { discard }: ServerToken): () => void {
  const reactions = {
    SIGTERM: () => drain().then(() => process.exit(0)),
    SIGINT: () => close().then(() => process.exit(130)),
    unhandledRejection: (error: unknown) =>
      console.error("evolverpc: unhandled promise rejection in the program", error),
    exit: discard,
  };
  for (const [event, react] of Object.entries(reactions)) process.on(event, react);
  return () => {
    for (const [event, react] of Object.entries(reactions)) process.off(event, react);
  };
}

/** Close once the last responses have been sent, or soon. */
async function closeServer(server: Server): Promise<void> {
  const closed = new Promise((resolve) => server.close(resolve));
  // A connection becomes idle when its last response has been sent.
  const sweep = setInterval(() => server.closeIdleConnections(), CLOSE_SWEEP_MS);
  const force = setTimeout(() => server.closeAllConnections(), CLOSE_GRACE_MS);
  await closed;
  clearInterval(sweep);
  clearTimeout(force);
}

function announce(
  { url, instanceId }: RunningServer,
  { program, datasets = {} }: DiscoverResult,
  key: ServerToken,
  settings: ServeSettings,
): void {
  const print = settings.announce ?? ((line: string) => process.stdout.write(`${line}\n`));
  if (settings.json ?? process.env.GEPA_READY_JSON === "1") {
    const ready = { event: "ready", url, token: key.given ? null : key.token, token_file: key.file ?? null };
    print(JSON.stringify({ ...ready, instance_id: instanceId, pid: process.pid }));
    return;
  }
  const source = key.file === undefined ? "GEPA_TOKEN" : key.file;
  const kind = program.components.length === 0 ? "typescript, only scores" : "typescript";
  print(`evolverpc ${PACKAGE_VERSION} · ${program.name} (${kind}) ready on ${url} · token in ${source}`);
  if (settings.announce !== undefined) return;
  const token = key.file === undefined ? "" : ` --token-file '${resolve(key.file).replaceAll("'", "'\\''")}'`;
  const rows = Object.hasOwn(datasets, "train") ? "" : " --trainset ROWS.jsonl";
  print(`next, in another terminal: npx evolverpc check ${url.replace(/\/rpc$/, "")}${token}${rows}`);
}
