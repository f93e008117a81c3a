/** Each view looks as in `screenshots/`; `npm run screenshots` replaces these after a change that is wanted. */

import { existsSync, mkdirSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import pixelmatch from "pixelmatch";
import type { Browser, Page } from "playwright-core";
import { PNG } from "pngjs";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { hasBrowser, launch } from "./browser";
import { show, VIEWS } from "./opened-page";
import { PageServer } from "./page-server";
import { sampleRun } from "./sample-run";

const KEPT = fileURLToPath(new URL("./screenshots/", import.meta.url));
const REPLACES = process.env.SCREENSHOTS === "replace";

/** The share of pixels that may differ: releases of Chromium draw the edges of letters and lines in other ways. */
const TOLERANCE = 0.004;

/** The one font that each Debian with Chromium has; letters of another are not of the same width. */
const FONT =
  "*, *::before { font-family: 'DejaVu Sans' !important; transition: none !important; caret-color: transparent }";

describe.skipIf(!hasBrowser)("in Chromium", () => {
  const server = new PageServer();
  let browser: Browser;
  let page: Page;

  beforeAll(async () => {
    const base = await server.start();
    server.sample = sampleRun({ driven: true, code: true });
    browser = await launch("--font-render-hinting=none", "--force-color-profile=srgb");
    const context = await browser.newContext({
      bypassCSP: true, // for the style sheet below
      viewport: { width: 1100, height: 800 },
      timezoneId: "UTC",
      locale: "en-GB",
    });
    page = await context.newPage();
    page.setDefaultTimeout(30_000);
    await page.clock.setFixedTime("2026-01-05T10:30:00Z");
    await page.goto(base);
    await page.addStyleTag({ content: FONT });
    await page.locator("main > .about").waitFor();
  });
  afterAll(async () => {
    await browser?.close();
    await server.close();
  });

  /** Take a picture once three in a row are the same: charts are drawn some frames after the view is open. */
  async function settled(): Promise<Buffer> {
    const pictures: Buffer[] = [];
    const same = (picture: Buffer) => pictures.at(-1)?.equals(picture) ?? false;
    while (pictures.length < 3) {
      const picture = await page.screenshot({ animations: "disabled" });
      if (!same(picture)) pictures.length = 0;
      pictures.push(picture);
      await page.waitForTimeout(50);
    }
    return pictures[0] as Buffer;
  }

  test.each(Object.entries(VIEWS))("The view %s looks as it did", async (name, hash) => {
    await show(page, hash);
    await page.evaluate(() => scrollTo(0, 0));
    const taken = await settled();
    const path = join(KEPT, `${name.replaceAll(" ", "-")}.png`);
    if (REPLACES) {
      mkdirSync(KEPT, { recursive: true });
      writeFileSync(path, taken);
      return;
    }
    expect(existsSync(path), `${path} is missing; npm run screenshots makes it`).toBe(true);
    const [now, before] = [PNG.sync.read(taken), PNG.sync.read(readFileSync(path))];
    expect([now.width, now.height]).toEqual([before.width, before.height]);
    const marked = new PNG({ width: now.width, height: now.height });
    const differing = pixelmatch(before.data, now.data, marked.data, now.width, now.height);
    const share = differing / (now.width * now.height);
    if (share <= TOLERANCE) return;
    const folder = mkdtempSync(join(tmpdir(), "screenshots-"));
    writeFileSync(join(folder, "now.png"), taken);
    writeFileSync(join(folder, "differences.png"), PNG.sync.write(marked));
    expect.fail(
      `${(100 * share).toFixed(1)} % of the pixels differ from ${path}: see ${folder}. If the change is wanted: npm run screenshots`,
    );
  });
});
