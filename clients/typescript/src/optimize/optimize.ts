/** Optimize a program in one call: serve it, run the optimizer beside it, and return what it found. */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { devNull } from "node:os";
import { basename, dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { SetupError } from "../base/configuration.js";
import type { Finished } from "../generated/optimize.js";
import type { Program } from "../program/program.js";
import { asSetupError } from "../server/node-process.js";
import { serve } from "../server/serve.js";
import { serveStdio } from "../server/stdio.js";
import {
  type AnyOptions,
  checkOptions,
  digestOf,
  type OptimizeOptions,
  programOf,
  respelled,
  variablesOf,
} from "./optimize-options.js";
import { type OptimizeResult, readResult } from "./optimize-result.js";
import { type Ended, runOptimizer, StopRequests } from "./optimizer-process.js";
import { optimizerCommand } from "./optimizer-setup.js";

/** A run that did not complete; what it found until then is in `result`. */
export class OptimizeError extends Error {
  constructor(
    message: string,
    readonly status: Finished["status"],
    /** Missing if the run was not begun. */
    readonly runId?: string,
    /** Missing if the seed was not scored. */
    readonly result?: OptimizeResult,
    options?: ErrorOptions,
  ) {
    super(message, options);
    this.name = "OptimizeError";
    Object.defineProperty(this, "result", { enumerable: false }); // too long to be printed with an uncaught error
  }
}

let calls = 0;

/**
 * Optimize the texts of a program, and return the best ones with their scores.
 *
 * Ctrl-C and SIGTERM pause the run, and then end the process; `resume` continues it.
 *
 * Rejects with `SetupError` if an option or the program cannot be used, or there is no optimizer; with `OptimizeError` if
 * the run is refused, paused or fails.
 */
export async function optimize<Data, Output, Component extends string>(
  options: OptimizeOptions<Data, Output, Component>,
): Promise<OptimizeResult<Component>> {
  try {
    calls++;
    return (await optimized(options as unknown as AnyOptions)) as OptimizeResult<Component>;
  } catch (error) {
    if (error instanceof OptimizeError) Error.captureStackTrace(error, optimize);
    throw asSetupError(error, optimize);
  }
}

async function optimized(options: AnyOptions): Promise<OptimizeResult> {
  checkOptions(Object(options), calls);
  const program = programOf(options);
  const digest = digestOf(options);
  const { trustResults, modelHosts } = options;
  if (process.env.GEPA_STDIO !== undefined) return serveStdio(program, { digest, trustResults, modelHosts }); // a worker of `serveIsolated`
  const settings = variablesOf(options);
  const stop = new StopRequests(options.signal);
  try {
    const command = await optimizerCommand(options.optimizer, stop.signal);
    const server = await served(program, digest, command, options);
    return resultOf(await runBeside(server, command, settings, options, stop), stop);
  } catch (error) {
    if (stop.received !== undefined) console.error(`evolverpc: ${(error as Error).message}`); // the process ends next
    throw error;
  } finally {
    stop.end();
  }
}

function served(program: Program, digest: string, optimizer: string, options: AnyOptions): Promise<ProgramServer> {
  if (options.isolated) return serveIsolated(optimizer, options);
  const { exampleTimeoutS, concurrency, trustResults, modelHosts } = options;
  const given = { digest, concurrency, exampleTimeoutS, trustResults, modelHosts };
  return serve(program, { ...given, ownsProcess: false, announce: () => {} });
}

async function runBeside(
  server: ProgramServer,
  optimizer: string,
  settings: Record<string, string>,
  { onEvent, resume }: AnyOptions,
  stop: StopRequests,
): Promise<Ended> {
  const words = resume === undefined ? ["optimize", server.url] : ["resume", resume, server.url];
  const env = { ...process.env, ...settings, GEPA_TOKEN: server.token, GEPA_TOKEN_FILE: undefined };
  try {
    stop.signal.throwIfAborted();
    return await runOptimizer(optimizer, words, { env, onEvent, stop });
  } finally {
    await server.close();
  }
}

function resultOf({ runId, summary, printed }: Ended, { signal }: StopRequests): OptimizeResult {
  const cause = signal.aborted ? { cause: signal.reason } : undefined;
  if (summary === undefined && runId !== undefined) {
    throw new OptimizeError(`the optimizer was killed. ${toContinue(runId)}`, "paused", runId, undefined, cause);
  }
  if (summary === undefined) {
    const message = respelled(printed.replace(/^error: /, "")) || "the optimizer ended before the run was begun";
    throw new OptimizeError(message, "refused", undefined, undefined, cause);
  }
  const { run_id: id, status, reason, output } = summary;
  const result = output === null ? undefined : readResult({ ...summary, output });
  if (status === "completed" && result !== undefined) return result;
  const why = reason === null ? "" : `: ${respelled(reason)}`;
  const fix = "If the program must change, fix it and start a new run; if not, continue it";
  const again = status === "refused" ? "" : status === "failed" ? `. ${fix}: ${resumption(id)}` : `. ${toContinue(id)}`;
  throw new OptimizeError(`run ${id} is ${status}${why}${again}`, status, id, result, cause);
}

function toContinue(runId: string): string {
  return `To continue it: ${resumption(runId)}`;
}

function resumption(runId: string): string {
  return `optimize({ ..., resume: "${runId}" })`;
}

/** A server for the optimizer, in this process or in others. */
interface ProgramServer {
  url: string;
  token: string;
  close(): Promise<void>;
}

/** Start this process's own command as the workers of a Python server, whose command is beside the optimizer's. */
async function serveIsolated(optimizer: string, { exampleTimeoutS, concurrency }: AnyOptions): Promise<ProgramServer> {
  const command = basename(optimizer) === optimizer ? "gepa-server" : join(dirname(optimizer), "gepa-server");
  // No gepa.toml: it would be about another server.
  const words = ["--json", "--until-stdin-closes", "--config", devNull, "--root", process.cwd()];
  if (exampleTimeoutS !== undefined) words.push("--example-timeout-s", String(exampleTimeoutS));
  if (concurrency !== undefined) words.push("--concurrency", String(concurrency));
  const own = [process.execPath, ...process.execArgv, ...process.argv.slice(1)];
  const child = spawn(command, [...words, "--command", ...own], { stdio: ["pipe", "pipe", "inherit"], detached: true });
  const failed = once(child, "close").then(
    ([status]) => `ended with status ${status}`,
    (error: Error) => `cannot be started: ${error.message}`,
  );
  const firstLine = once(createInterface({ input: child.stdout }), "line").then(([line]) => JSON.parse(line));
  const ready = await Promise.race([firstLine, failed.then(() => ({}))]);
  if (ready.event !== "ready") throw new SetupError(`the isolated program is not served: ${command} ${await failed}`);
  const { url, token } = ready as { url: string; token: string | null };
  const close = async (): Promise<void> => {
    child.kill("SIGTERM");
    await failed;
  };
  return { url, token: token ?? process.env.GEPA_TOKEN ?? "", close };
}
