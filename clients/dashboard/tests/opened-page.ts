/** The page in a browser: its views, what axe finds in them, and what it must never do. */

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { Page } from "playwright-core";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** Each view's address, by its name. */
export const VIEWS: Record<string, string> = {
  now: "#/now",
  result: "#/result",
  plot: "#/progress",
  tree: "#/tree",
  "heat map": "#/rows",
  cell: "#/rows?candidate=1&row=1",
  text: "#/text",
  origins: "#/text?as=origins",
  reflection: "#/reflection",
  runs: "#/runs",
};

/** Open a view in the page that is loaded, and wait until its answers are there. */
export async function show(page: Page, hash: string): Promise<void> {
  await page.evaluate(async (hash) => {
    location.hash = hash;
    const frame = () => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
    await frame();
    for (let tries = 0; document.body.innerText.includes("Loading.") && tries < 200; tries += 1) await frame();
  }, hash);
}

/** Return what axe finds, by all of its rules or these. */
export async function violations(page: Page, rules: readonly string[] | null = null): Promise<string[]> {
  if (!(await page.evaluate(() => "axe" in window))) await page.evaluate(AXE);
  return page.evaluate(async (only) => {
    const { axe } = window as unknown as { axe: { run(where: Document, options: object): Promise<AxeResult> } };
    const found = await axe.run(document, { resultTypes: ["violations"], ...(only ? { runOnly: only } : {}) });
    return found.violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(" ")}`);
  }, rules);
}

/** Note in `wrong` each error, dialog, violation of the policy, and request to an address that is not `permitted`. */
export function collectWrong(page: Page, wrong: string[], permitted: (url: string) => boolean): void {
  page.on("pageerror", (error) => wrong.push(`error: ${error.message}`));
  page.on("console", (message) => {
    if (message.type() === "error" && !message.text().startsWith("Failed to load resource")) wrong.push(message.text());
  });
  page.on("dialog", (dialog) => {
    wrong.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  page.on("request", (request) => {
    if (!permitted(request.url()) && !request.url().startsWith("data:")) wrong.push(`request: ${request.url()}`);
  });
}

interface AxeResult {
  readonly violations: readonly { readonly id: string; readonly nodes: readonly { readonly html: string }[] }[];
}
