/** Serve this process's program from child processes, behind `evolverpc serve`, so that an example cannot stop the run. */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { devNull } from "node:os";
import { basename, dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { SetupError } from "../base/configuration.js";

/** A server for the optimizer, in this process or in others. */
export interface ProgramServer {
  url: string;
  token: string;
  close(): Promise<void>;
}

/** Start this process's own command as the workers of a Python server, whose command is beside the optimizer's. */
export async function serveIsolated(
  optimizer: string,
  exampleTimeoutS: number | undefined,
  concurrency: number | undefined,
): Promise<ProgramServer> {
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
