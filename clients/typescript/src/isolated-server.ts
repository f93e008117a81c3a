/** Serve this process's program from child processes, behind `gepa-server`, so that an example cannot stop the run. */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { devNull } from "node:os";
import { basename, dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { SetupError } from "./configuration.js";

/** A server for the optimizer, in this process or in others. */
export interface ProgramServer {
  url: string;
  token: string;
  close(): Promise<void>;
}

/** Start this process's own command as the workers of a `gepa-server`, which is beside the optimizer's command. */
export async function serveIsolated(optimizer: string, exampleTimeoutS: number | undefined): Promise<ProgramServer> {
  const command = basename(optimizer) === optimizer ? "gepa-server" : join(dirname(optimizer), "gepa-server");
  const own = [process.execPath, ...process.execArgv, ...process.argv.slice(1)];
  const limit = exampleTimeoutS === undefined ? [] : ["--example-timeout-s", String(exampleTimeoutS)];
  // No gepa.toml: it would be about another server.
  const words = [
    "--json",
    "--config",
    devNull,
    "--root",
    process.cwd(),
    "--until-stdin-closes",
    ...limit,
    "--command",
    ...own,
  ];
  const child = spawn(command, words, { stdio: ["pipe", "pipe", "inherit"], detached: true });
  const closed = once(child, "close");
  const failed = closed.then(
    ([status]) => `ended with status ${status}`,
    (error: Error) => `cannot be started: ${error.message}`,
  );
  const lines = createInterface({ input: child.stdout });
  const ready = await Promise.race([
    once(lines, "line").then(([line]) => line as string),
    failed.then(() => undefined),
  ]);
  const line = ready === undefined ? {} : JSON.parse(ready);
  if (line.event !== "ready") throw new SetupError(`the isolated program is not served: ${command} ${await failed}`);
  const { url, token } = line as { url: string; token: string | null };
  const close = async (): Promise<void> => {
    child.kill("SIGTERM");
    await failed;
  };
  return { url, token: token ?? process.env.GEPA_TOKEN ?? "", close };
}
