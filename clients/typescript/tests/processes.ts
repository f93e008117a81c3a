// Child processes that are over when their test is.
import { type ChildProcessByStdio, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import type { Readable, Writable } from "node:stream";
import { fileURLToPath } from "node:url";
import { onTestFinished } from "vitest";

export interface Child {
  process: ChildProcessByStdio<Writable, Readable, Readable>;
  /** Lines of its standard output, as they come. */
  lines: AsyncIterator<string>;
  /** What it wrote to the standard error so far. */
  stderr: () => string;
  /** Its exit code, or the signal that ended it. */
  ended: Promise<number | string | null>;
}

/** Runs a TypeScript file below this folder's parent. */
export function started(file: string, args: string[] = [], environment: Record<string, string> = {}): Child {
  const script = fileURLToPath(new URL(`../${file}`, import.meta.url));
  const child = spawn(process.execPath, ["--import", "tsx", script, ...args], {
    env: { ...process.env, ...environment },
    stdio: ["pipe", "pipe", "pipe"],
  });
  let stderr = "";
  child.stderr.on("data", (chunk) => {
    stderr += chunk;
  });
  const ended = new Promise<number | string | null>((resolve) => {
    child.on("exit", (code, signal) => resolve(code ?? signal));
  });
  onTestFinished(async () => {
    child.kill("SIGKILL");
    await ended;
  });
  return { process: child, lines: createInterface(child.stdout)[Symbol.asyncIterator](), stderr: () => stderr, ended };
}

/** Its next line as JSON. */
export async function nextMessage(child: Child): Promise<any> {
  const { value, done } = await child.lines.next();
  if (done) throw new Error(`the process said nothing more; it wrote: ${child.stderr()}`);
  return JSON.parse(value);
}
