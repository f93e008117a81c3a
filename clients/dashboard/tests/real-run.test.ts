/** The page of a real run: while it runs, after its optimizer was killed, once it has ended, and as the exported file. */

import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath, pathToFileURL } from "node:url";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { hasBrowser, launch } from "./browser";
import { NIGHTLY } from "./nightly";
import { collectWrong, show, VIEWS, violations } from "./opened-page";

const COMMANDS = fileURLToPath(new URL("../../../.venv/bin/", import.meta.url));
const hasCommands = existsSync(join(COMMANDS, "evolverpc"));

/** Learns one word for each proposal, and waits before the third until the test lets it continue. */
const PROGRAM = `
import pathlib
import time

WAITS = pathlib.Path(__file__).with_name("continue")
seed_candidate = {"rules": "red"}


def run(example, candidate):
    print("looks for", example["word"])
    if example["word"] == "grey":
        raise KeyError("amount")
    return "found" if example["word"] in candidate["rules"].split() else "missing"


def score(example, output):
    return (1, "right") if output == "found" else (0, f"add {example['word']}")


def propose_new_texts(candidate, reflective_dataset, components):
    until = time.monotonic() + 120
    while len(candidate["rules"].split()) >= 3 and not WAITS.exists() and time.monotonic() < until:
        time.sleep(0.05)
    missed = [record["Feedback"] for record in reflective_dataset["rules"] if record["Feedback"].startswith("add")]
    return {"rules": f"{candidate['rules']} {missed[0].removeprefix('add ') if missed else 'more'}"}
`;
const WORDS = ["red", "blue", "green", "grey", "black", "white"];

/** Text that each view shows of this run, in all of its states. */
const SHOWN: Record<string, string> = {
  now: "How the best candidate came about",
  result: "rules",
  plot: "best so far",
  tree: "on the Pareto front",
  "heat map": "missing",
  cell: "looks for",
  text: "red",
  origins: "red",
  reflection: "rules",
  runs: "best score",
};

if (!hasCommands)
  console.warn("The tests of a real run are skipped: evolverpc is not in .venv; make setup puts it there");

describe.skipIf(!NIGHTLY || !hasBrowser || !hasCommands)("in Chromium", () => {
  const folder = mkdtempSync(join(tmpdir(), "evolverpc-page-"));
  const children: ChildProcess[] = [];
  const wrong: string[] = [];
  /** What each address that the page opens must begin with. */
  let base = "";
  let browser: Browser;
  let page: Page;

  /** Start a command line in a process group of its own; resolves with the first line of its output that has this text. */
  function start(line: string, until: string): Promise<{ child: ChildProcess; found: string }> {
    const { GEPA_TOKEN: _, ...environment } = process.env;
    const child = spawn("sh", ["-c", `exec ${line}`], {
      cwd: folder,
      detached: true,
      stdio: ["ignore", "pipe", "pipe"],
      env: { ...environment, HOME: folder, PATH: COMMANDS + delimiter + process.env.PATH },
    });
    children.push(child);
    let output = "";
    const found = new Promise<{ child: ChildProcess; found: string }>((resolve, reject) => {
      child.stderr.on("data", (part) => {
        output += part;
      });
      createInterface(child.stdout).on("line", (found) => {
        output += `${found}\n`;
        if (found.includes(until)) resolve({ child, found });
      });
      child.on("close", (code) => reject(new Error(`${line} ended with ${code}: ${output}`)));
    });
    found.catch(() => {}); // a test that failed earlier does not wait for it
    return found;
  }

  /** Run `evolverpc watch` as given, and open the address that it prints. */
  async function watch(command: string): Promise<ChildProcess> {
    const { child, found } = await start(`${command} --no-open`, "page: ");
    await page.goto("about:blank"); // the page before this one asks its own server until it is left
    base = new URL(found.replace("page: ", "")).origin;
    await page.goto(found.replace("page: ", ""));
    await page.locator("main > .about").waitFor();
    return child;
  }

  function kill(child: ChildProcess): void {
    if (child.exitCode === null && child.signalCode === null) process.kill(-(child.pid as number), "SIGKILL");
  }

  /** Kill an optimizer and its driver, which is in a process group of its own, as a machine that fails does. */
  function killOptimizer({ pid }: ChildProcess): void {
    const drivers = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim().split(" ");
    for (const each of [pid as number, ...drivers.map(Number)]) process.kill(each, "SIGKILL");
  }

  /** The command of this name for this run, as the page shows it. */
  async function shownCommand(name: string): Promise<string> {
    const beginning = new RegExp(`^\\s*evolverpc ${name} \\S`);
    return (await page.locator("code", { hasText: beginning }).first().innerText()).trim();
  }

  /** Check that each view shows the run; `differs`: text of the views that show another one. Axe looks at `looked` only. */
  async function checkViews(
    differs: Record<string, string> = {},
    looked: readonly string[] = ["now", "result"],
  ): Promise<void> {
    for (const [name, hash] of Object.entries(VIEWS)) {
      await show(page, hash);
      await page
        .locator("main")
        .getByText(differs[name] ?? (SHOWN[name] as string))
        .first()
        .waitFor({ state: "attached" });
      if (looked.includes(name)) expect(await violations(page), name).toEqual([]);
    }
    expect(wrong).toEqual([]);
  }

  async function checkEvents(): Promise<void> {
    await show(page, "#/now");
    await page.getByText("Events, the latest first").click();
    await page.getByText(/^the seed scores/).waitFor();
  }

  beforeAll(async () => {
    writeFileSync(join(folder, "program.py"), PROGRAM);
    const rows = WORDS.map((word, number) => JSON.stringify({ id: `row ${number}`, word }));
    writeFileSync(join(folder, "rows.jsonl"), rows.join("\n"));
    browser = await launch();
    page = await browser.newPage({ viewport: { width: 1100, height: 800 } });
    page.setDefaultTimeout(30_000);
    collectWrong(page, wrong, (url) => url.startsWith(base));
  });
  afterAll(async () => {
    for (const child of children.reverse()) kill(child);
    await browser?.close();
    await rm(folder, { recursive: true, maxRetries: 10, retryDelay: 100 });
  });

  test("Every view shows a run while it runs, killed, resumed, completed, and as the exported file", async () => {
    const server = await start("evolverpc serve program.py --port 0 --token-file token", "ready on");
    const url = /http:\S+/.exec(server.found)?.[0];
    const optimizer = await start(
      `evolverpc optimize ${url} --token-file token --trainset rows.jsonl --valset rows.jsonl --check off --seed 1 ` +
        "--max-metric-calls 80 --lease-s 2 --output run --store 'kept here.db'",
      "candidate 2",
    );
    const first = await watch("evolverpc watch last --store 'kept here.db'");
    await page.getByText("running: optimizing").waitFor();
    await checkViews({}, Object.keys(VIEWS));

    killOptimizer(optimizer.child);
    await page.getByText("The optimizer sends no heartbeat").waitFor();
    await checkViews();
    const completed = start(await shownCommand("resume"), "score 0.17 ->");
    await page.getByText("The optimizer sends no heartbeat").waitFor({ state: "detached" });

    kill(first);
    await page.getByText("connection lost, retrying").waitFor();
    await watch(await shownCommand("watch"));
    writeFileSync(join(folder, "continue"), "");
    await page.locator(".badge", { hasText: "completed" }).waitFor();
    await completed;
    await checkViews();
    await checkEvents();

    await page.goto("about:blank");
    base = pathToFileURL(folder).href;
    await page.context().setOffline(true);
    await page.goto(`${base}/run/report.html`);
    await page.locator(".badge", { hasText: "exported file" }).waitFor();
    await checkViews({ runs: "Not available" });
    await checkEvents();
  });
});
