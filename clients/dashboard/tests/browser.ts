/** Debian's Chromium by Playwright; none if it is not installed. */

import { existsSync } from "node:fs";
import { type Browser, chromium } from "playwright-core";

const EXECUTABLE = process.env.CHROMIUM ?? "/usr/bin/chromium";

export const hasBrowser = existsSync(EXECUTABLE);

export function launch(...args: string[]): Promise<Browser> {
  return chromium.launch({
    executablePath: EXECUTABLE,
    args: [
      "--no-sandbox",
      "--disable-gpu",
      ...args,
      "--disable-quic",
      "--no-first-run",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
    ],
  });
}
