import { readFileSync } from "node:fs";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { PageEvent } from "../src/generated/events";
import { hasBrowser, launch } from "./browser";
import { HOSTILE } from "./hostile-strings";
import { collectWrong, show, VIEWS, violations } from "./opened-page";
import { PageServer } from "./page-server";
import { RUN, sampleRun } from "./sample-run";

/** With HOSTILE_STRINGS=all each field gets each of the strings, else a fortieth of them, another one than its neighbours. */
const ALL_STRINGS = process.env.HOSTILE_STRINGS === "all";

if (!hasBrowser)
  console.warn("The tests of the page in a browser are skipped: there is no Chromium; on Debian: apt install chromium");

describe.skipIf(!hasBrowser)("in Chromium", () => {
  const server = new PageServer();
  /** What the page must never do: errors, dialogs, violations of the policy, requests to other hosts. */
  const wrong: string[] = [];
  let base: string;
  let browser: Browser;
  let page: Page;

  beforeAll(async () => {
    base = await server.start();
    browser = await launch();
    page = await browser.newPage({ viewport: { width: 1100, height: 800 } });
    page.setDefaultTimeout(30_000);
    collectWrong(page, wrong, (url) => url.startsWith(base));
  });
  beforeEach(() => {
    wrong.length = 0;
  });
  afterAll(async () => {
    await browser?.close();
    await server.close();
  });

  async function load(path = ""): Promise<void> {
    await page.goto("about:blank");
    await page.goto(`${base}/${path}`);
    await page.locator("main > .about").waitFor();
  }

  test("Every view is free of violations that axe finds, light and wide as dark and narrow", async () => {
    server.sample = sampleRun({ driven: true, code: true });
    await load();
    for (const dark of [false, true]) {
      await page.emulateMedia({ colorScheme: dark ? "dark" : "light" });
      await page.setViewportSize(dark ? { width: 320, height: 700 } : { width: 1100, height: 800 });
      for (const [name, hash] of Object.entries(VIEWS)) {
        await show(page, hash);
        const found = await violations(
          page,
          dark ? ["color-contrast", "scrollable-region-focusable", "target-size"] : null,
        );
        expect(found, name).toEqual([]);
        const wider = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        expect(wider, `${name} is wider than the window`).toBeLessThanOrEqual(0);
      }
    }
    expect(wrong).toEqual([]);
  });

  test("Hostile strings in every field are shown as text", async () => {
    expect(HOSTILE.length).toBeGreaterThanOrEqual(100);
    server.sample = sampleRun({ candidates: 3, rows: 3, code: true });
    await page.emulateMedia({ colorScheme: "light" });
    await page.setViewportSize({ width: 1100, height: 800 });
    await load();
    // These have every field that a program, a model or a row fills; the others show the same candidates.
    const views = ["cell", "result", "origins", "text", "reflection", "runs", "now"].map(
      (name) => VIEWS[name] as string,
    );
    const plain = await page.evaluate(tagNames, [...Object.values(VIEWS), "#/now"]);
    for (let number = 0; number < HOSTILE.length; number += ALL_STRINGS ? 1 : 40) {
      const hostile = (field: string) => HOSTILE[(number + shift(field)) % HOSTILE.length] as string;
      server.sample = sampleRun({ candidates: 3, rows: 3, code: true, text: hostile });
      server.reset(`string ${number}`);
      await page
        .locator("code", { hasText: `string ${number}` })
        .first()
        .waitFor({ state: "attached" });
      const shown = await page.evaluate(tagNames, number % 80 ? views : [...Object.values(VIEWS), "#/now"]);
      expect(
        shown.filter((name) => !plain.includes(name)),
        String(number),
      ).toEqual([]);
    }
    expect(wrong).toEqual([]);
  });

  test("Keys alone reach everything, and move in the heat map and in the tree", async () => {
    server.sample = sampleRun({ driven: true, candidates: 4, rows: 5 });
    await load();
    for (const hash of Object.values(VIEWS)) {
      await show(page, hash);
      await page.evaluate(() => (document.activeElement as HTMLElement | null)?.blur());
      const reached = new Set<string>();
      const expected = await page.evaluate(() =>
        [...document.querySelectorAll<HTMLElement>("a[href], button, input, select, textarea, summary, [tabindex='0']")]
          .filter((element) => element.checkVisibility() && !element.matches(":disabled"))
          .map((element, number) => {
            element.dataset.number = String(number);
            return String(number);
          }),
      );
      for (let presses = 0; presses < expected.length + 3; presses += 1) {
        await page.keyboard.press("Tab");
        const found = await page.evaluate(() => {
          const element = document.activeElement as HTMLElement;
          return [element.dataset.number, getComputedStyle(element).outlineStyle];
        });
        if (found[0] === undefined) continue;
        expect(found[1], `focus is visible in ${hash}`).not.toBe("none");
        reached.add(found[0]);
      }
      expect(
        expected.filter((number) => !reached.has(number)),
        hash,
      ).toEqual([]);
    }
    await show(page, "#/rows");
    await page.locator(".map").focus();
    for (const key of ["Control+End", "Control+Home", "ArrowRight", "ArrowDown", "+", "0", "Enter"]) {
      await page.keyboard.press(key);
    }
    await page.locator("#cell-heading:focus").waitFor();
    expect(await page.evaluate(() => location.hash)).toContain("candidate=1");
    await page.keyboard.press("Escape");
    await page.locator(".map:focus").waitFor();
    expect(await page.locator(".cell").count()).toBe(0);
    await show(page, "#/tree");
    await page.locator(".graph").focus();
    for (const key of ["Home", "ArrowRight", "Enter"]) await page.keyboard.press(key);
    await page.locator("ins, del").first().waitFor();
    expect(await page.evaluate(() => location.hash)).toMatch(/^#\/text\?candidate=\d+&with=0/);
    expect(wrong).toEqual([]);
  });

  test("The page follows a run, travels in its journal, steers it, and survives a lost connection", async () => {
    server.sample = sampleRun({ driven: true });
    await load("#token=t&run=last");
    const { events } = server.sample;
    const best = events.findLast((event) => event.event === "candidate") as Extract<PageEvent, { event: "candidate" }>;
    const found = [
      { ...best, index: 12, digest: "d12", at: 800, score: 0.99, parents: [3], front: [12], best: 12 },
      { ...(events.at(-1) as object), end: 900 },
    ] as PageEvent[];
    server.sample.events.push(...found);
    server.send(found);
    await page.getByText("0.99 (candidate 12)").waitFor();

    await page.locator("#travel").fill("100");
    await page
      .getByText(/^best 0\.5 \(candidate 1\)/)
      .or(page.getByText("0.5 (candidate 1)"))
      .first()
      .waitFor();
    await page.getByRole("button", { name: "Latest" }).click();
    await page.getByText("0.99 (candidate 12)").waitFor();

    await page.getByRole("button", { name: "Pause" }).click();
    await page.getByRole("button", { name: "Hint for reflection" }).click();
    await page.getByLabel("Hint", { exact: true }).fill("Quote the rule.");
    await page.getByRole("button", { name: "Add the hint" }).click();
    await page.getByText("Asked; it takes effect between two iterations.").waitFor();
    expect(server.steered).toEqual([{ kind: "pause" }, { kind: "hint", text: "Quote the rule." }]);

    server.cut();
    await page.getByText("connection lost, retrying").waitFor();
    await page.getByText("connection lost, retrying").waitFor({ state: "detached" });
    await page.getByText("0.99 (candidate 12)").waitFor();

    const lost = { ...events.find(({ event }) => event === "now"), lost: true } as PageEvent;
    server.send([lost, { event: "store", problem: null, gone: true }]);
    await page.getByText("The optimizer sends no heartbeat").waitFor();
    await page.getByText("The run was deleted from its store").waitFor();
  });

  test("Without a reflection model no hint is offered, and training rows that select are named as such", async () => {
    server.sample = sampleRun({ driven: true });
    for (const event of server.sample.events) {
      if (event.event === "run") Object.assign(event, { reflection_model: null });
      if (event.event === "rows") Object.assign(event, { training: true });
    }
    await load("#token=t&run=last");
    await page.getByRole("button", { name: "Propose a text" }).waitFor();
    expect(await page.getByRole("button", { name: "Hint for reflection" }).count()).toBe(0);
    for (const view of ["plot", "heat map", "tree"]) {
      await show(page, VIEWS[view] ?? "");
      expect(await page.locator("main").innerText(), view).not.toMatch(/validation/i);
    }
  });

  test("Every view states that examples are stuck, where they wait and what to do, without a forecast", async () => {
    server.sample = sampleRun({ driven: true });
    await load();
    await page.getByText("ends in about").waitFor();
    const { events } = server.sample;
    const [now, failures] = ["now", "failures"].map((kind) => events.find(({ event }) => event === kind)) as [
      Extract<PageEvent, { event: "now" }>,
      Extract<PageEvent, { event: "failures" }>,
    ];
    const traceback = '  File "status.py", line 51, in status\n    s.recv(1)';
    const groups = [{ ...failures.groups[0], type: "timeout", status: "timeout", count: 6, traceback }];
    const stuck = { waiting_for: null, waiting_since: null, in_flight: 2, timeouts: 2, no_result_s: 360, usual_s: 0.2 };
    const longest = [{ ...now.longest[0], row: "train 94", candidate: "x80" }];
    server.send([
      { ...now, ...stuck, longest },
      { ...failures, groups },
    ] as PageEvent[]);
    for (const [name, hash] of Object.entries(VIEWS)) {
      await show(page, hash);
      const banner = page.getByRole("region", { name: "No result" });
      const text = await banner.innerText();
      expect(text, name).toContain("No result for 6 min: 2 examples wait; 2 timed out before them.");
      expect(text, name).toMatch(/train 94 with proposal x80 \(since \d\d:\d\d:\d\d\)/);
      expect(text, name).toContain("The last example that did not time out finished at 5 Jan 2026");
      expect(text, name).toContain("an example then times out after 10 s (so far examples took 200 ms on average)");
      expect(text, name).toContain("http://127.0.0.1:8100");
      expect(text, name).toContain("as a time-out, which counts as 0.");
      expect(text, name).toContain("status.py, line 51: s.recv(1)");
      expect(text, name).toContain("evolverpc pause");
      expect(text, name).toContain("--example-timeout-s 10");
      expect(await page.getByText("ends in about").count(), name).toBe(0);
    }
    server.send([{ ...now, waiting_for: null, no_result_s: 1 }] as PageEvent[]);
    await page.getByRole("region", { name: "No result" }).waitFor({ state: "detached" });
    expect(wrong).toEqual([]);
  });

  test("A run that failures paused states its whole reason, what they count as, and how to score them again", async () => {
    server.sample = sampleRun({ candidates: 3 });
    const { events } = server.sample;
    const command = `evolverpc resume ${"a".repeat(200)} --failure-stop 1`;
    const reason = `26 of the last 50 examples failed (to continue regardless: \`${command}\`)`;
    const paused = events.map((event) => {
      if (event.event === "run") return { ...event, status: "paused", reason };
      if (event.event === "proposal" && event.at === 140) return { ...event, decided: null, outcome: "pending" };
      if (event.event !== "failures") return event;
      return {
        ...event,
        groups: event.groups.map((group) => ({ ...group, candidates: { x80: 7 }, candidate: "x80" })),
      };
    });
    server.sample = { ...server.sample, events: paused as PageEvent[] };
    await load();
    const banner = page.getByRole("alert");
    await banner.getByText("the 7 recorded failures count as 0 also after the fix").waitFor();
    expect(await banner.innerText()).toContain(command);
    expect(await banner.innerText()).toMatch(/evolverpc fork \S+ --at 41/);
    expect(await banner.innerText()).toContain("begins with the 41 entries recorded before the first failure");
    const proposal = events.find((event) => event.event === "proposal" && event.digest === "x80");
    const link = page.locator("main a", { hasText: "proposal x80" }).first();
    expect(await link.getAttribute("href")).toBe(`#/reflection?proposal=${(proposal as { at: number }).at}`);
    const failures = await page.locator(".panel", { hasText: "Failed examples" }).innerText();
    expect(failures).toContain("KeyError 7 times, raised by the program, on 2 rows, with 3 different messages");
    await page.getByText(/proposals: .*, 1 not decided when the run stopped/).waitFor();
    expect(failures).toContain("On val ticket-3 and 1 more.");
    expect(failures).toContain("Messages: 'team' (5 times), 'urgency' (1 time) and 1 more.");
  });

  test("Now shows the beginning of a long best text, the lines that a change adds, and the place of the result", async () => {
    const long = (index: number) => Array.from({ length: 20 + index }, (_, line) => `rule ${line}`).join("\n");
    const sample = sampleRun({ candidates: 3 });
    const events = sample.events.map((event) => {
      if (event.event === "run") return { ...event, components: ["rules"] };
      if (event.event !== "candidate") return event;
      const parents = event.index === 0 ? [] : [event.index - 1];
      const texts = { rules: { text: long(event.index), omitted: 0 } };
      return { ...event, parents, score: event.index / 4, texts, front: [2], best: 2 };
    });
    server.sample = { ...sample, events: events as PageEvent[] };
    await load();
    await page.getByText("12 more lines").waitFor();
    expect(await page.getByRole("link", { name: "the whole text" }).getAttribute("href")).toBe("#/text?candidate=2");
    expect(await page.getByLabel("What it adds").allInnerTexts()).toEqual(["+ rule 20", "+ rule 21"]);
    const result = page.locator(".panel", { hasText: "Where it is, and what is next" });
    expect(await result.innerText()).toContain("best_candidate.json in runs/tickets has the best texts.");
    expect(await result.innerText()).toContain("evolverpc show");
    expect(await page.locator("abbr.term", { hasText: "metric calls" }).first().getAttribute("title")).toMatch(
      /budget/,
    );
  });

  test("Result shows the words of the last change and the rows it fixed and broke, without a fold to open", async () => {
    server.sample = sampleRun();
    await load();
    await page.getByRole("link", { name: "The last change with the rows that it fixed and broke" }).click();
    const panel = page.locator(".panel", { hasText: "The last change: why candidate" });
    await panel.getByText("My card was charged twice.").first().waitFor();
    const text = await panel.innerText();
    expect(text).toMatch(
      /The validation score went from 0\.\d+ \(candidate \d+\) to 0\.\d+: \d+ rows fixed, \d+ broken/,
    );
    expect(text).toMatch(/Its iteration took \d+ metric calls/);
    expect(text).toMatch(/Fixed: \d+ rows with a higher score/);
    expect(text).toMatch(/val ticket-\d+: 0\.\d \u2192 /);
    expect(await panel.locator("ins, del").count()).toBeGreaterThan(0);
    const rows = panel.locator("li:visible");
    expect(await rows.count()).toBeLessThanOrEqual(12);
    const before = await rows.count();
    await panel
      .getByText(/^and \d+ more$/)
      .first()
      .click();
    await expect.poll(() => rows.count()).toBeGreaterThan(before);
    expect(await page.locator(".top").innerText()).toMatch(/best validation score\s/);
    await page
      .getByText(/^1\. |^3\. Candidate/)
      .first()
      .click();
    const compared = page.getByRole("link", { name: "The whole text, compared" }).first();
    expect(await compared.getAttribute("href")).toMatch(/candidate=\d+&with=\d+$/);
    expect(wrong).toEqual([]);
  });

  test("The rows with the lowest score of the best candidate are shown alone, in the map and in the table", async () => {
    server.sample = sampleRun();
    await load();
    const link = page.getByRole("link", { name: "see these rows" });
    const stated = await page.locator("p", { has: link }).innerText();
    const lost = Number(/(\d+) rows? ha/.exec(stated)?.[1]);
    await link.click();
    await page.getByText(`Only the ${lost} row`).waitFor();
    await page.getByText(new RegExp(`place 1 of ${lost},`)).waitFor();
    await page.getByRole("button", { name: "table", exact: true }).click();
    expect(await page.locator("tbody tr").count()).toBe(lost);
    await page.getByRole("link", { name: "Show all 30 rows" }).click();
    await expect.poll(() => page.locator("tbody tr").count()).toBe(30);
  });

  test("A proposal states how many rows of its minibatch are shown, shows the others, and what failures count as", async () => {
    const sample = sampleRun({ candidates: 3 });
    const path = `/api/runs/${RUN}/proposal?at=60`;
    const answer = sample.answers[path] as { rows: { row: string; after: object }[] };
    const rows = answer.rows.map((row) => ({ ...row, after: { ...row.after, status: "program_error", score: 0 } }));
    const all = ["a", "b", "c"].map((row) => ({ ...rows[0], row }));
    const answers = { [path]: { ...answer, rows }, [`${path}&rows=all`]: { ...answer, rows: all } };
    server.sample = { ...sample, answers: { ...sample.answers, ...answers } };
    await load("#/reflection?proposal=60");
    await page.getByText("Rows of its minibatch, the first 1 of 3").waitFor();
    await page.getByText("train ticket-3: 0.7 \u2192 failed (counts as 0)").waitFor();
    await page.getByRole("button", { name: "Show all 3 rows" }).click();
    await page.getByText("train c: 0.7").waitFor();
  });

  test("Outcomes of proposals are not counted before they have been read", async () => {
    const sample = sampleRun({ driven: true });
    const [position] = sample.events.filter(({ event }) => event === "position") as [PageEvent];
    server.sample = { ...sample, events: sample.events.filter(({ event }) => event !== "position") };
    await load();
    await page.getByText("their outcomes are being read").waitFor();
    server.send([position]);
    await page.getByText(/\d+ proposals: \d+ kept/).waitFor();
    await show(page, "#/result");
    await page.getByText("The run has not ended. Its best text so far is below").waitFor();
  });

  test("An exported file shows the run without a server", async () => {
    const { events, answers } = sampleRun();
    const read = (name: string) =>
      readFileSync(new URL(`../../../gepa_client/page/dist/${name}`, import.meta.url), "utf8");
    const left_out = ["the texts of 900 candidates"];
    const data = JSON.stringify({ events, answers, left_out, command: "evolverpc watch 1" }).replaceAll("<", "\\u003c");
    await page.goto("about:blank");
    await page.setContent(
      `<!doctype html><html lang="en"><meta charset="utf-8"><title>Run</title><style>${read("page.css")}</style><div id="page"></div>` +
        `<script type="application/json" id="run-data">${data}</script><script>${read("page.js")}</script></html>`,
    );
    await page.locator(".badge", { hasText: "exported file" }).waitFor();
    await page
      .getByText(/^Candidate 11/)
      .first()
      .waitFor();
    await page.getByText("On 25 test rows the seed scores 0.52").waitFor();
    await page.getByText("Not in this file: the texts of 900 candidates. evolverpc watch 1 shows").waitFor();
    expect(await violations(page), "result").toEqual([]);
    await show(page, "#/rows?candidate=1&row=1");
    await page.getByText("My card was charged twice. Please help!").waitFor();
    expect(wrong).toEqual([]);
  });
});

function shift(field: string): number {
  return [...field].reduce((sum, letter) => sum * 31 + letter.charCodeAt(0), 7) % HOSTILE.length;
}

/** Return the names of all elements in these views, with the attributes that run or load something. */
async function tagNames(views: readonly string[]): Promise<string[]> {
  const found = new Set<string>();
  const frame = () => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
  const loading = () =>
    [...document.querySelectorAll("main [role=status]")].some((each) => each.textContent === "Loading.");
  for (const view of views) {
    location.hash = view;
    await frame();
    for (let tries = 0; loading() && tries < 500; tries += 1) await frame();
    for (const element of document.querySelectorAll("*")) {
      found.add(element.tagName);
      for (const { name, value } of element.attributes) {
        if (name.startsWith("on") || name === "src" || name === "srcdoc" || name === "style") found.add(name);
        if (name === "href" && !value.startsWith("#/") && element.tagName !== "LINK") found.add(`href ${value}`);
      }
    }
  }
  return [...found];
}
