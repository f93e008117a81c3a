/** The page of the service: a real service, used in a browser as people use it. */

import type { Browser, BrowserContext, Page } from "playwright-core";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { messagesFor } from "../src/parts/problem";
import { hasBrowser, launch } from "./browser";
import { HOSTILE } from "./hostile-strings";
import { NIGHTLY } from "./nightly";
import { collectWrong, violations } from "./opened-page";
import { hasService, RunningService } from "./running-service";

if (!hasService)
  console.warn("The tests of the service's page are skipped: evolverpc is not in .venv; make setup puts it there");

const OF_JOB = ["now", "result", "progress", "tree", "rows", "text", "reflection", "log"];
/** Views that the page of a run has too, whose tests look at all of them. */
const OF_RUN = ["job result", "job progress", "job tree", "job rows", "job text", "job reflection"];
/** Rules of axe that depend on colours and widths. */
const OF_LOOKS = ["color-contrast", "scrollable-region-focusable", "target-size"];
/** Markup, and what breaks it; texts that a database of records stores. */
const STRINGS = [...HOSTILE.slice(0, 14), ...HOSTILE.slice(25, 31)];

test("A message stands at its field, and at none whose name begins so", () => {
  const errors = ["reflection_lm", "ref", "ref.name"].map((field) => ({ field, message: `${field} is wrong` }));
  const messages = messagesFor({ status: 422, title: "", detail: "", errors }, "ref");
  expect(messages).toEqual(["ref is wrong", "ref.name: ref.name is wrong"]);
});

describe.skipIf(!hasBrowser || !hasService)("in Chromium", () => {
  const service = new RunningService();
  const wrong: string[] = [];
  let browser: Browser;
  let context: BrowserContext;
  let page: Page;
  /** The job that the first test begins, and the version it makes. */
  let job = "";
  let version = "";
  /** The step and the batch of `insert`, as the page addresses them. */
  let ofPage: string[] = [];

  beforeAll(async () => {
    await service.start();
    browser = await launch();
    context = await browser.newContext({ viewport: { width: 1280, height: 860 } });
    page = await opened(context);
  }, 120_000);
  beforeEach(() => {
    wrong.length = 0;
  });
  afterAll(async () => {
    await browser?.close();
    await service.close();
  });

  async function opened(where: BrowserContext): Promise<Page> {
    const made = await where.newPage();
    made.setDefaultTimeout(30_000);
    collectWrong(made, wrong, (url) => url.startsWith(service.url));
    return made;
  }

  /** Sign in with a key, at this address of the page. */
  async function signIn(where: Page, key: string, path = "/"): Promise<void> {
    await where.goto(service.url + path);
    await where.getByLabel(/API key/).fill(key);
    await where.getByRole("button", { name: "Sign in" }).click();
    await where.getByRole("button", { name: "Sign out" }).waitFor();
  }

  /** Open a view and wait until it is loaded; of the document that is open, if it has it. */
  async function go(where: Page, path: string): Promise<void> {
    const wanted = new URL(path, service.url);
    const now = new URL(where.url());
    if (now.origin !== wanted.origin || now.search !== wanted.search) await where.goto(wanted.href);
    else if (now.hash === wanted.hash) await where.reload();
    else await where.evaluate(changeHash, wanted.hash);
    await where.locator("main h1").waitFor();
    await settled(where);
  }

  async function settled(where: Page): Promise<void> {
    await where.waitForFunction(() => !document.body.innerText.includes("Loading."));
  }

  /** Each view of the page, by name. */
  function views(): Record<string, string> {
    return {
      jobs: "/#/jobs",
      new: "/#/new",
      repositories: "/#/repositories",
      versions: "/#/versions",
      version: `/#/version?id=${version}`,
      usage: "/#/usage",
      work: "/#/work",
      batches: "/#/work?show=batches",
      ...Object.fromEntries(ofPage.map((address) => [address, `/#/work?${address}`])),
      access: "/#/access",
      secrets: "/#/access?show=secrets",
      ...Object.fromEntries(OF_JOB.map((name) => [`job ${name}`, `/?job=${job}#/${name}`])),
    };
  }

  test("A person signs in, connects a repository, optimizes it, follows the job, and promotes the version", async () => {
    await page.goto(service.url);
    await page.getByLabel(/API key/).fill("grk_mistyped");
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByText("the key is not valid").waitFor();
    expect(await violations(page), "sign in").toEqual([]);
    await signIn(page, service.owner);
    await page.getByText("No job yet").waitFor();
    const kept = await page.evaluate(() => JSON.stringify([localStorage, sessionStorage, document.cookie]));
    expect(kept).toBe('[{},{},""]');

    await page.getByRole("link", { name: "Repositories" }).first().click();
    await page.getByLabel("Address").fill("/no/such/folder");
    await page.getByRole("button", { name: "Connect", exact: true }).click();
    await page.locator("#field-repo_url-error").waitFor();
    expect(await violations(page), "repositories").toEqual([]);
    await page.getByLabel("Address").fill(service.repository);
    await page.getByRole("button", { name: "Connect", exact: true }).click();
    await page.getByText("Connected:").waitFor();
    await page.getByRole("link", { name: "Optimize" }).click();

    await page.getByLabel("Training rows, a file of the repository").fill("../rows.jsonl");
    await page.getByLabel("Metric calls").fill("80");
    await page.getByRole("button", { name: "Begin" }).click();
    await page.locator("#field-trainset_path-error").waitFor();
    await page.locator("#field-trainset_path:focus").waitFor();
    await page.getByLabel("Training rows, a file of the repository").fill("rows.jsonl");
    await page.getByLabel("Validation rows, a file of the repository").fill("rows.jsonl");
    await page.getByRole("group", { name: "Test rows from" }).getByText("this form").click();
    await page.getByLabel("Test rows, given here").fill('{"word": "red"}\nno JSON');
    await page.getByRole("button", { name: "Begin" }).click();
    await page.getByText("line 2 is not JSON").waitFor();
    expect(await violations(page), "new").toEqual([]);
    await page.getByLabel("Test rows, given here").fill('{"word": "blue", "test": 1}\n{"word": "red", "test": 2}');
    await page.getByText("Parallel examples").click();
    await page.getByLabel("Further settings").fill('{"name": "words of colours", "check": "warn"}');
    await page.getByRole("button", { name: "Begin" }).click();

    await page.waitForURL(/\?job=job_/);
    job = new URL(page.url()).searchParams.get("job") ?? "";
    await page.getByRole("heading", { name: "words of colours" }).waitFor();
    await page.locator(".badge", { hasText: "completed" }).waitFor({ timeout: 120_000 });
    await page.getByRole("link", { name: "Log" }).click();
    await page.getByText("gains under").or(page.getByText("may be missed")).first().waitFor();

    await page.getByRole("link", { name: "the version it made" }).click();
    await page.waitForURL(/version\?id=/);
    version = new URLSearchParams(new URL(page.url()).hash.split("?")[1]).get("id") ?? "";
    await page.getByRole("button", { name: "Promote" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("button", { name: "Promote" }).waitFor();
    if (await dialog.getByLabel("Reason").isVisible()) await dialog.getByLabel("Reason").fill("It is <b>good</b>.");
    await dialog.getByRole("button", { name: "Promote" }).click();
    await page.locator(".badge", { hasText: "active" }).waitFor();
    await page.getByRole("button", { name: "Deliver" }).click();
    await page.getByRole("button", { name: "Show the patch" }).click();
    await page.getByText("the version changes no code").waitFor();
    expect(await violations(page), "version").toEqual([]);
    ofPage = service.insert(["a text"]).work ?? [];
    expect(wrong).toEqual([]);
  });

  test("Every view shows the job as it was recorded", async () => {
    const shown: Record<string, string> = {
      now: "Result",
      result: "Best text",
      progress: "best so far",
      tree: "on the Pareto front",
      rows: "missing",
      text: "red <script>alert(1)</script>",
      reflection: "rules <img src=x onerror=alert(1)>",
      log: "attempt",
    };
    for (const [name, text] of Object.entries(shown)) {
      await go(page, `/?job=${job}#/${name}`);
      await page.locator("main").getByText(text).first().waitFor({ state: "attached" });
    }
    await go(page, `/?job=${job}#/rows?candidate=0&row=3`);
    await page.getByText("amount <img src=x onerror=alert(1)>").first().waitFor();
    await page.getByText("Not available").waitFor({ state: "detached" });
    expect(wrong).toEqual([]);
  });

  test("Nothing is shown of a job's run, or to choose a repository from, until it is loaded", async () => {
    const held: string[] = [];
    let release: () => void = () => {};
    const released = new Promise<void>((resolve) => {
      release = resolve;
    });
    await context.route(/\/stream$|\/repositories$/, async (route) => {
      held.push(route.request().url());
      await released;
      await route.continue();
    });
    const [ofJob, ofForm] = [await opened(context), await opened(context)];
    await ofJob.goto(`${service.url}/?job=${job}#/now`);
    await ofForm.goto(`${service.url}/#/new`);
    for (const where of [ofJob, ofForm]) {
      await where.locator("main h1").waitFor();
      await where.getByText("Loading.").waitFor();
    }
    expect(held.length).toBe(2);
    expect(await ofJob.getByText("no run to show").count()).toBe(0);
    expect(await ofForm.locator("form").count()).toBe(0);
    release();
    await ofJob.getByRole("heading", { name: "Result" }).waitFor();
    await ofForm.getByText("another one, by its address").waitFor({ state: "attached" });
    expect(await ofForm.getByLabel("Address of the repository").count()).toBe(0);
    await context.unrouteAll({ behavior: "wait" });
    await Promise.all([ofJob.close(), ofForm.close()]);

    const { jobs = [] } = service.insert(["a job without a run"]);
    await go(page, `/?job=${jobs[2]}#/now`);
    await page.getByText("no run to show").waitFor();
    expect(wrong).toEqual([]);
  });

  test("Why a run cannot be read is stated in its place", async () => {
    const where = await opened(context);
    const trouble = { event: "store", problem: "the run cannot be read at present", gone: false };
    const body = `id: abc-0\ndata: ${JSON.stringify(trouble)}\n\n`;
    await where.route(/\/stream/, (route) => route.fulfill({ contentType: "text/event-stream", body }));
    await where.goto(`${service.url}/?job=${job}#/now`);
    await where.getByText("Not shown: the run cannot be read at present").waitFor();
    await where.close();
  });

  test("A page that is opened in the background is loaded, and not read again until it is seen", async () => {
    const where = await opened(context);
    await where.addInitScript(() => Object.defineProperty(document, "hidden", { get: () => true }));
    let lists = 0;
    where.on("request", (request) => {
      if (request.url().endsWith("/jobs")) lists += 1;
    });
    await where.clock.install();
    await where.goto(`${service.url}/#/jobs`);
    await where.getByText("words of colours").first().waitFor();
    await where.clock.runFor(20_000);
    expect(lists).toBe(1);
    await where.goto(`${service.url}/#/new`);
    await where.getByLabel("Repository", { exact: true }).waitFor();
    await where.close();
    expect(wrong).toEqual([]);
  });

  test("Every view is free of violations that axe finds, and no wider than its window", async () => {
    for (const [width, scheme] of [
      [1280, "light"],
      [400, "dark"],
    ] as const) {
      await page.setViewportSize({ width, height: 800 });
      await page.emulateMedia({ colorScheme: scheme });
      for (const [name, path] of Object.entries(views())) {
        await go(page, path);
        const some = scheme === "dark" || OF_RUN.includes(name);
        expect(await violations(page, some ? OF_LOOKS : null), `${name}, ${scheme}`).toEqual([]);
        const wider = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        expect(wider, `${name} is wider than ${width}`).toBeLessThanOrEqual(0);
      }
    }
    await page.setViewportSize({ width: 1280, height: 860 });
    await page.emulateMedia({ colorScheme: "light" });
    expect(wrong).toEqual([]);
  });

  test("Keys alone reach everything, with a focus that is visible", async () => {
    for (const [name, path] of Object.entries(views())) {
      if (OF_RUN.includes(name)) continue;
      await go(page, path);
      const expected = await page.evaluate(() =>
        [...document.querySelectorAll<HTMLElement>("a[href], button, input, select, textarea, summary, [tabindex='0']")]
          .filter((element) => element.checkVisibility() && !element.matches(":disabled"))
          .map((element, number) => {
            element.dataset.number = String(number);
            return String(number);
          }),
      );
      const reached = new Set<string>();
      for (let presses = 0; reached.size < expected.length && presses < 3 * expected.length; presses += 1) {
        await page.keyboard.press("Tab");
        const [number, outline] = await page.evaluate(() => {
          const element = document.activeElement as HTMLElement;
          return [element.dataset.number, getComputedStyle(element).outlineStyle];
        });
        if (number === undefined) continue;
        expect(outline, `focus is visible in ${name}`).not.toBe("none");
        reached.add(number);
      }
      expect(
        expected.filter((number) => !reached.has(number)),
        name,
      ).toEqual([]);
    }
  });

  test("Jobs are paused, resumed, given a larger budget and cancelled", async () => {
    const { jobs = [] } = service.insert(["a job"]);
    await go(page, `/?job=${jobs[1]}#/now`);
    await page.getByRole("button", { name: /^Raise budget/ }).click();
    await page.getByLabel("Metric calls").fill("0");
    await page.getByRole("button", { name: "Set the limits" }).click();
    const keys: (string | undefined)[] = [];
    await page.route(`**/job/${jobs[1]}`, (route, sent) => {
      if (sent.method() === "PATCH") keys.push(sent.headers()["idempotency-key"]);
      return keys.length === 1 && sent.method() === "PATCH" ? route.abort() : route.continue();
    });
    await page.getByLabel("Metric calls").fill("500");
    await page.getByRole("button", { name: "Set the limits" }).click();
    await page.getByText("the server does not answer").waitFor();
    await page.getByRole("button", { name: "Set the limits" }).click();
    await page.getByRole("dialog").waitFor({ state: "hidden" });
    expect([new Set(keys).size, keys.length], "sent again after a lost answer, it is the same write").toEqual([1, 2]);
    await go(page, "/#/jobs?show=unfinished");
    const card = page.locator("li.card", { hasText: "of 500 metric calls" });
    await card.waitFor();
    await card.getByRole("button", { name: /^Cancel/ }).click();
    await page.getByRole("button", { name: "Cancel the job" }).click();
    await card.waitFor({ state: "detached" });
    expect((await service.call<{ status: string }>("GET", `/job/${jobs[1]}`)).status).toBe("cancelled");
  });

  test("A viewer sees the views and nothing that changes anything", async () => {
    const viewer = await browser.newContext();
    const where = await opened(viewer);
    await signIn(where, (await service.key("viewer")).key);
    for (const [name, path] of Object.entries(views())) {
      await go(where, path);
      const controls = where.locator("form, .controls, dialog, a.button");
      expect(await controls.count(), name).toBe(0);
    }
    const tabs = await where.getByRole("navigation", { name: "Service" }).innerText();
    expect(tabs).not.toMatch(/New optimization|Access/);
    await go(where, "/#/usage");
    expect(await where.getByText("Audit log").count()).toBe(0);
    await viewer.close();
    expect(wrong).toEqual([]);
  });

  test("A key that is revoked in the middle signs its people out, who continue where they were with another one", async () => {
    const other = await browser.newContext();
    const where = await opened(other);
    const { jobs = [] } = service.insert(["a job that waits"]);
    const key = await service.key("editor");
    await signIn(where, key.key, `/?job=${jobs[1]}#/log`);
    await where.getByRole("heading", { name: "a job that waits" }).waitFor();
    await service.call("DELETE", `/keys/${key.key_id}`);
    await where.getByText("You were signed out").waitFor();
    expect(await where.locator("main").innerText()).not.toContain("a job that waits");
    expect(await violations(where)).toEqual([]);
    await where.getByLabel(/API key/).fill((await service.key("viewer")).key);
    await where.getByRole("button", { name: "Sign in" }).click();
    await where.getByRole("heading", { name: "a job that waits" }).waitFor();
    await where.getByRole("button", { name: "Sign out" }).click();
    await where.getByText("You are signed out.").waitFor();
    await where.reload();
    await where.getByRole("heading", { name: "Sign in" }).waitFor();
    await other.close();
    expect(wrong).toEqual([]);
  });

  test("A lost connection is stated, and what was loaded stays", async () => {
    await go(page, "/#/jobs");
    await page.getByText("words of colours").first().waitFor();
    await context.setOffline(true);
    await page.getByText("Connection lost").waitFor();
    await page.getByText("words of colours").first().waitFor();
    await context.setOffline(false);
    await page.getByRole("button", { name: "Try again" }).click();
    await page.getByText("Connection lost").waitFor({ state: "detached" });
  });

  test("An owner makes a key, which is shown once, and revokes it", async () => {
    await go(page, "/#/access");
    await page.getByLabel("What it is for").fill("of the nightly build");
    await page.getByRole("button", { name: "Add" }).click();
    const shown = await page.locator("code.secret").innerText();
    expect(shown).toMatch(/^grk_/);
    await page.getByRole("button", { name: "I have it" }).click();
    expect(await page.getByText(shown).count()).toBe(0);
    await page.getByRole("button", { name: "Revoke: of the nightly build" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Revoke", exact: true }).click();
    await page.locator("li", { hasText: "of the nightly build" }).getByText("revoked").waitFor();
    const answer = await fetch(`${service.url}/jobs`, { headers: { authorization: `Bearer ${shown}` } });
    expect(answer.status).toBe(401);
  });

  test("A secret is written, listed without its value, and deleted", async () => {
    await go(page, "/#/access?show=secrets");
    await page.getByLabel("Name").fill("PATH");
    await page.getByLabel("Value").fill("hidden-value");
    await page.getByRole("button", { name: "Add" }).click();
    await page.locator("#field-name-error").waitFor();
    await page.getByLabel("Name").fill("MODEL_KEY");
    await page.getByRole("button", { name: "Add" }).click();
    await page.getByRole("button", { name: "Delete: MODEL_KEY" }).click();
    expect(await page.content()).not.toContain("hidden-value");
    await page.getByRole("dialog").getByRole("button", { name: "Delete", exact: true }).click();
    await page.getByText("None yet.").waitFor();
  });

  test("Steps and batches have a list and a page each, with results and a way to delete them", async () => {
    const { work = [] } = service.insert(["of a step"]);
    for (const [show, at] of [
      ["steps", 0],
      ["batches", 1],
    ] as const) {
      await go(page, `/#/work?show=${show}`);
      await page.locator(`a[href$="${work[at]}"]`).click();
      await page.getByRole("heading", { name: "Results" }).waitFor();
      await page.getByText("of a step").first().waitFor();
      await page.getByRole("button", { name: /^Delete/ }).click();
      await page.getByRole("dialog").getByRole("button", { name: "Delete", exact: true }).click();
      await page.waitForURL(new RegExp(`show=${show}$`));
      await page.locator("main h1").waitFor();
      await settled(page);
      expect(await page.locator(`a[href$="${work[at]}"]`).count()).toBe(0);
    }
  });

  test("Hostile strings in every field are shown as text", async () => {
    const plain = new Set<string>();
    const open = async (found: Set<string>, ids: Record<string, string[]>) => {
      const paths = [
        ...["jobs", "new", "work", "repositories", "versions", "usage", "access"].map((name) => `/#/${name}`),
        "/#/work?show=batches",
        ...(ids.work ?? []).map((address) => `/#/work?${address}`),
        `/?job=${ids.jobs?.[1]}#/now`, // paused
        `/?job=${ids.jobs?.[2]}#/now`, // failed
        `/?job=${ids.jobs?.[2]}#/log`,
        ...(ids.programs ?? []).map((id) => `/#/version?id=${id}`),
      ];
      for (const path of paths) {
        await go(page, path);
        for (const name of await page.evaluate(elements)) found.add(name);
      }
    };
    await open(plain, service.insert(["plain"]));
    expect(STRINGS.length).toBe(20);
    for (let first = 0; first < STRINGS.length; first += NIGHTLY ? 1 : STRINGS.length) {
      const found = new Set<string>();
      await open(found, service.insert([...STRINGS.slice(first), ...STRINGS.slice(0, first)]));
      const made = [...found].filter((name) => !plain.has(name) && fromStrings(name));
      expect(made, `strings from number ${first} on`).toEqual([]);
    }
    expect(wrong).toEqual([]);
  });
});

/** Show another view of the document. */
async function changeHash(hash: string): Promise<void> {
  location.hash = hash;
  for (let frames = 0; frames < 2; frames += 1)
    await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
}

/** Whether the strings could have made this, one of `elements`: the page's own elements also come and go with its state. */
function fromStrings(name: string): boolean {
  const markup = name.startsWith("href ")
    ? name.slice("href ".length)
    : name === name.toUpperCase()
      ? `<${name}`
      : name;
  return STRINGS.some((text) => text.toLowerCase().includes(markup.toLowerCase()));
}

/** The names of all elements, and the attributes that run or load something. */
function elements(): string[] {
  const found = new Set<string>();
  for (const element of document.querySelectorAll("*")) {
    found.add(element.tagName);
    for (const { name, value } of element.attributes) {
      if (name.startsWith("on") || name === "src" || name === "srcdoc" || name === "formaction") found.add(name);
      if (name === "href" && element.tagName !== "LINK" && !/^(\/(\?job=[^#]*)?)?#\//.test(value))
        found.add(`href ${value}`);
    }
  }
  return [...found];
}
