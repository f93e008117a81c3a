/** A real `evolverpc service up` with a repository of a small program, and calls of its API. */

import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { existsSync, mkdtempSync, writeFileSync } from "node:fs";
import { mkdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { HOSTILE } from "./hostile-strings";

const ROOT = fileURLToPath(new URL("../../../", import.meta.url));
const COMMANDS = join(ROOT, ".venv/bin/");
export const hasService = existsSync(join(COMMANDS, "evolverpc"));

/** Learns one word for each proposal; texts that models, rows and programs fill hold markup. */
const PROGRAM = `
NAME = "rules <img src=x onerror=alert(1)>"
seed_candidate = {NAME: "red <script>alert(1)</script>"}


def run(example, candidate):
    print("looks for <svg onload=alert(1)>", example["word"])
    if example["word"] == "grey":
        raise KeyError("amount <img src=x onerror=alert(1)>")
    return "found <b>" if example["word"] in candidate[NAME].split() else "missing <b>"


def score(example, output):
    return (1, "right") if output.startswith("found") else (0, f"add {example['word']}")


def propose_new_texts(candidate, reflective_dataset, components):
    missed = [record["Feedback"] for record in reflective_dataset[NAME] if record["Feedback"].startswith("add")]
    return {NAME: f"{candidate[NAME]} {missed[0].removeprefix('add ') if missed else 'more'}"}
`;
const WORDS = ["red", "blue", "green", "grey", "black", "white"];

export interface Key {
  readonly key_id: string;
  readonly key: string;
}

export class RunningService {
  readonly folder = mkdtempSync(join(tmpdir(), "evolverpc-service-"));
  readonly repository = join(this.folder, "words");
  url = "";
  owner = "";
  private process: ChildProcess | null = null;

  async start(): Promise<void> {
    await this.writeRepository();
    const environment = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("GEPA_")));
    const child = spawn(
      join(COMMANDS, "evolverpc"),
      ["service", "up", "--data", join(this.folder, "data"), "--port", "0", "--sandbox", "process", "--json"],
      {
        cwd: this.folder,
        stdio: ["ignore", "pipe", "pipe"],
        env: { ...environment, HOME: this.folder, PATH: COMMANDS + delimiter + process.env.PATH },
      },
    );
    this.process = child;
    let output = "";
    child.stderr.on("data", (part) => {
      output += part;
    });
    const line = await new Promise<string>((resolve, reject) => {
      createInterface(child.stdout).once("line", resolve);
      child.once("close", (code) => reject(new Error(`evolverpc service up ended with ${code}: ${output}`)));
    });
    const { url, key } = JSON.parse(line) as { url: string; key: string };
    this.url = url;
    this.owner = key;
    this.command("tenants", "change", "default", "--requests-per-minute", "100000");
  }

  async close(): Promise<void> {
    const child = this.process;
    if (child !== null && child.exitCode === null) {
      const ended = new Promise((resolve) => child.once("close", resolve));
      child.kill("SIGTERM");
      await ended;
    }
    await rm(this.folder, { recursive: true, maxRetries: 10, retryDelay: 100 });
  }

  async call<Answer>(method: string, path: string, body?: unknown): Promise<Answer> {
    const answer = await fetch(this.url + path, {
      method,
      headers: { authorization: `Bearer ${this.owner}`, "content-type": "application/json" },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
    return (text === "" ? null : JSON.parse(text)) as Answer;
  }

  /** Run a command of `evolverpc service` on the service's database. */
  private command(...words: string[]): void {
    execFileSync(join(COMMANDS, "evolverpc"), [
      "service",
      ...words,
      "--database",
      join(this.folder, "data", "records.db"),
    ]);
  }

  /** Make a key with this role. */
  key(role: string): Promise<Key> {
    return this.call<Key>("POST", "/keys", { name: `${role} of the test`, role });
  }

  /** Put these strings into records of every kind; return their ids by kind. */
  insert(strings: readonly string[]): Record<string, string[]> {
    const command = ["-m", "tests.gepa_service.page_records", join(this.folder, "data", "records.db")];
    const printed = execFileSync(join(COMMANDS, "python"), command, { cwd: ROOT, input: JSON.stringify(strings) });
    return JSON.parse(printed.toString()) as Record<string, string[]>;
  }

  private async writeRepository(): Promise<void> {
    await mkdir(this.repository);
    const rows = WORDS.map((word, number) => JSON.stringify({ id: `row ${number} ${HOSTILE[number]}`, word }));
    const test = WORDS.map((word, number) => JSON.stringify({ id: `test ${number}`, word, again: true }));
    writeFileSync(join(this.repository, "program.py"), PROGRAM);
    writeFileSync(join(this.repository, "gepa.toml"), 'program = "program.py"\n');
    writeFileSync(join(this.repository, "rows.jsonl"), rows.join("\n"));
    writeFileSync(join(this.repository, "test.jsonl"), test.join("\n"));
    const identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"];
    for (const words of [
      ["init", "--quiet"],
      ["add", "--all"],
      [...identity, "commit", "--quiet", "-m", "Add words"],
    ]) {
      execFileSync("git", words, { cwd: this.repository });
    }
  }
}
