// Child processes that end with their test.
import { type ChildProcessByStdio, spawn } from "node:child_process";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Readable, Writable } from "node:stream";
import { inject, onTestFinished } from "vitest";

export interface Child {
  process: ChildProcessByStdio<Writable, Readable, Readable>;
  /** Lines of its standard output, as they come. */
  lines: AsyncIterator<string>;
  /** What it wrote to the standard error so far; complete once it has `ended`, for pipes keep no order between them. */
  stderr: () => string;
  /** Resolves when its standard error holds the text. */
  complained: (text: string) => Promise<void>;
  /** Its exit code, or the signal that ended it; all it wrote has been read. */
  ended: Promise<number | string | null>;
}

/** The JavaScript of a TypeScript file, whose path is relative to this folder's parent. */
export function compiled(file: string): string {
  return join(inject("compiled"), file.replace(/\.ts$/, ".js"));
}

/** Runs a TypeScript file below this folder's parent, compiled; `inherited` becomes its descriptor 3. */
export function started(
  file: string,
  args: string[] = [],
  environment: Record<string, string> = {},
  inherited: number | "ignore" = "ignore",
): Child {
  return startedNode([compiled(file), ...args], environment, inherited);
}

/** Runs Node with these arguments. */
export function startedNode(
  args: string[],
  environment: Record<string, string> = {},
  inherited: number | "ignore" = "ignore",
): Child {
  const child = spawn(process.execPath, args, {
    env: { ...process.env, ...environment },
    stdio: ["pipe", "pipe", "pipe", inherited],
  }) as Child["process"];
  let stderr = "";
  child.stderr.on("data", (chunk) => {
    stderr += chunk;
  });
  const ended = new Promise<number | string | null>((resolve) => {
    child.on("close", (code, signal) => resolve(code ?? signal));
  });
  const complained = (text: string): Promise<void> =>
    new Promise((resolve) => {
      const look = (): void => {
        if (stderr.includes(text)) resolve();
      };
      child.stderr.on("data", look);
      look();
    });
  onTestFinished(async () => {
    child.kill("SIGKILL");
    await ended;
  });
  const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
  return { process: child, lines, stderr: () => stderr, complained, ended };
}

/** Its next line as JSON. */
export async function nextMessage(child: Child): Promise<any> {
  const { value, done } = await child.lines.next();
  if (done) throw new Error(`the process printed no further line; its standard error: ${child.stderr()}`);
  return JSON.parse(value);
}
