import { readFileSync } from "node:fs";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { PageEvent } from "../src/generated/events";
import { hasBrowser, launch } from "./browser";
import { HOSTILE } from "./hostile-strings";
import { NIGHTLY } from "./nightly";
import { collectWrong, show, VIEWS, violations } from "./opened-page";
import { PageServer } from "./page-server";
import { RUN, sampleRun } from "./sample-run";

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

  test("At 390 px the header is under 120 px high, and tabs, badges and cells of tables are in sight", async () => {
    server.sample = sampleRun();
    await page.setViewportSize({ width: 390, height: 844 });
    await load();
    for (const hash of Object.values(VIEWS)) {
      await show(page, hash);
      expect((await page.locator(".top").boundingBox())?.height, hash).toBeLessThan(120);
      const outside = await page.evaluate(() =>
        [...document.querySelectorAll(".tabs a, .badge, td, tbody th")]
          .filter((each) => each.getBoundingClientRect().left < 0 || each.getBoundingClientRect().right > innerWidth)
          .map(({ outerHTML }) => outerHTML),
      );
      expect(outside, hash).toEqual([]);
    }
    await page.setViewportSize({ width: 1100, height: 800 });
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
    // each field gets another string than its neighbours
    for (let number = 0; number < HOSTILE.length; number += NIGHTLY ? 1 : 40) {
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
    await page.getByText("Asked; it takes effect between two iterations.").first().waitFor();
    await expect.poll(() => server.steered).toEqual([{ kind: "pause" }, { kind: "hint", text: "Quote the rule." }]);

    server.cut();
    await page.getByText("connection lost, retrying").waitFor();
    await page.getByText("connection lost, retrying").waitFor({ state: "detached" });
    await page.getByText("0.99 (candidate 12)").waitFor();

    server.send([{ event: "store", problem: null, gone: true }]);
    await page.getByText("The run was deleted from its store").waitFor();
  });

  test("Failed iterations are shown as text, from their place in the journal on, after warnings", async () => {
    server.sample = sampleRun({ driven: true });
    await load("#/now?token=t&run=last");
    const failed = { event: "failure", seconds: 0, at: 200, step: "reflection", details: "at work" };
    const message = `<b>half</b> of it ${HOSTILE[0]}`;
    server.send(Array.from({ length: 23 }, (_, iteration) => ({ ...failed, iteration, message })) as PageEvent[]);
    const panel = page.locator("section", { has: page.getByRole("heading", { name: "Warnings and failed" }) });
    const line = panel.getByText("<b>half</b> of it").first();
    await line.waitFor();
    expect(await panel.locator("li").first().innerText()).toContain("warning: 2 of 30 validation rows have");
    expect(await panel.innerText()).toContain("3 earlier ones left out");
    await page.locator("#travel").fill("100");
    await line.waitFor({ state: "detached" });
    await panel.getByText("validation rows have").waitFor();
    await page.locator("#travel").fill("300");
    await line.waitFor();
    expect(wrong).toEqual([]);
  });

  test("Recorded events are listed in the server's words, in pages, and those with given words alone", async () => {
    server.sample = sampleRun();
    await load("#/now?token=t&run=last");
    await page.getByText("Events, the latest first").click();
    const lines = page.getByRole("region", { name: "Events" }).locator("tbody tr");
    await expect.poll(() => lines.allInnerTexts()).toHaveLength(3);
    expect(await lines.nth(2).innerText()).toMatch(/candidate\s+\d+\s+candidate 1 from 0: 0.5 best so far/);
    await page.getByRole("button", { name: "Show more" }).click();
    await expect.poll(() => lines.last().innerText()).toContain("the seed scores 0.4");
    await page.getByLabel("With the words").fill("failed");
    await page.keyboard.press("Enter");
    await expect.poll(() => lines.allInnerTexts()).toHaveLength(1);
    expect(await lines.innerText()).toContain("reflection failed: the model does not answer");
    expect(await violations(page), "events").toEqual([]);
    expect(wrong).toEqual([]);
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

  test("Every view states what needs the reader first, with what to do, and until it is over", async () => {
    server.sample = sampleRun({ driven: true });
    await load();
    const commands = [{ command: "evolverpc pause 1", what: "stop the run for now" }];
    const stuck = { kind: "stuck", title: "No result for 6 min", text: ["At the server x."], commands };
    server.send([{ event: "notices", notices: [stuck] }] as PageEvent[]);
    for (const [name, hash] of Object.entries(VIEWS)) {
      await show(page, hash);
      const text = await page.getByRole("region", { name: "No result for 6 min" }).innerText();
      for (const part of ["At the server x.", "evolverpc pause 1 stop the run"]) expect(text, name).toContain(part);
      expect(await page.locator(".badge").allInnerTexts(), name).toContain("running: no result");
    }
    server.send([{ event: "notices", notices: [] }] as PageEvent[]);
    await page.getByRole("region", { name: "No result" }).waitFor({ state: "detached" });
    expect(wrong).toEqual([]);
  });

  test("Failures link to the proposals that failed, and undecided proposals are counted", async () => {
    server.sample = sampleRun({ candidates: 3 });
    const { events } = server.sample;
    const paused = events.map((event) => {
      if (event.event === "proposal" && event.at === 140) return { ...event, decided: null, outcome: "pending" };
      if (event.event !== "failures") return event;
      return {
        ...event,
        groups: event.groups.map((group) => ({ ...group, candidates: { x80: 7 }, candidate: "x80" })),
      };
    });
    server.sample = { ...server.sample, events: paused as PageEvent[] };
    await load();
    const proposal = events.find((event) => event.event === "proposal" && event.digest === "x80");
    const { at } = proposal as { at: number };
    expect(await page.locator(`main a[href="#/reflection?proposal=${at}"]`).first().innerText()).toMatch(
      /^proposal \d/,
    );
    const failures = await page.locator(".panel", { hasText: "Failed examples" }).innerText();
    expect(failures).toContain("KeyError 7 times, raised by the program");
    expect(failures).toContain("on 2 rows: val ticket-3, ...; by candidates: 0 (4 times), 3 (3 times). The first");
    await show(page, "#/reflection");
    await page.getByRole("button", { name: "not decided (1)" }).waitFor();
  });

  test("Result shows the words of the last change and the rows it fixed and broke, without a fold to open", async () => {
    server.sample = sampleRun();
    await load();
    expect(await page.locator(".figures > div").first().innerText()).toMatch(
      /^test score\s+0.52\s\u2192\s0.81 \(25 test/,
    );
    await page.getByRole("link", { name: "How the best candidate came about" }).click();
    const panel = page.locator(".panel", { hasText: "The last change: why candidate" });
    await panel.getByText("Where is my refund?").first().waitFor();
    const text = await panel.innerText();
    expect(text).toContain("Candidate 11: 0.52 -> 0.81 on validation. 9 rows are better, 1 is worse and 20 the same.");
    expect(text).toContain("Better: 9 rows, 1 of them here");
    expect(text).toMatch(/train ticket-3: 0\.7\s\u2192\s/);
    expect(await panel.locator("ins, del").count()).toBeGreaterThan(0);
    expect(await page.locator(".top").innerText()).toMatch(/best validation score\s/);
    await page
      .getByText(/^1\. |^3\. Candidate/)
      .first()
      .click();
    const compared = page.getByRole("link", { name: "The whole text, compared" }).first();
    expect(await compared.getAttribute("href")).toMatch(/candidate=\d+&with=\d+$/);
    expect(wrong).toEqual([]);
  });

  test("Where code alone made the best candidate, its difference is open instead of the text", async () => {
    const { events, answers } = sampleRun({ code: true });
    const [seed] = events.filter(({ event }) => event === "candidate");
    if (seed?.event !== "candidate") throw new Error("the sample has no seed");
    const changed = events.map((event): PageEvent => {
      if (event.event === "candidate")
        return { ...event, texts: seed.texts, ...(event.index === 11 && { scores: event.scores.map(() => 1) }) };
      return event.event === "mutation" ? { ...event, cost_usd: null } : event;
    });
    server.sample = { events: changed, answers };
    await load();
    const result = page.locator(".panel", { has: page.getByRole("heading", { name: "Best code" }) });
    for (const hash of ["#/now", "#/result"]) {
      await show(page, hash);
      const removed = result.first().locator(".diff del").first();
      expect(await removed.isVisible(), hash).toBe(true);
      expect(await removed.innerText()).toMatch(/^-def team/);
      expect(await removed.evaluate((line) => getComputedStyle(line).textDecorationLine)).toBe("none");
      expect(await result.first().innerText()).not.toMatch(/unknown|Best text/);
    }
    expect(await result.first().innerText()).toContain("It scores 1 on each of its 30 rows.");
    expect(await result.first().locator(".block:not(.diff):visible").count()).toBe(0);
  });

  test("A row of a program that returned nothing states so", async () => {
    const { events, answers } = sampleRun({ candidates: 3 });
    const path = `/api/runs/${RUN}/cell?candidate=1&row=1`;
    const cell = answers[path] as { result: object };
    server.sample = { events, answers: { ...answers, [path]: { ...cell, result: { ...cell.result, output: null } } } };
    await load("#/rows?candidate=1&row=1");
    expect(await page.locator(".cell .pair").innerText()).toMatch(/Output\s+none/);
  });

  test("The rows with the lowest score of the best candidate are shown alone, in the map and in the table", async () => {
    server.sample = sampleRun();
    await load("#/result");
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
    await page.getByText("It has not ended.").waitFor();
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
