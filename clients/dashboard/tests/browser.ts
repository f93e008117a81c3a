/** Chromium by Playwright: of CHROMIUM, or where Debian and Ubuntu put it; the tests skip if there is none. */

import { existsSync } from "node:fs";
import { type Browser, chromium } from "playwright-core";

const PLACES = ["/usr/bin/chromium", "/usr/bin/google-chrome"];
const EXECUTABLE = process.env.CHROMIUM ?? PLACES.find((path) => existsSync(path)) ?? "";

export const hasBrowser = existsSync(EXECUTABLE);

export function launch(...args: string[]): Promise<Browser> {
  return chromium.launch({
    executablePath: EXECUTABLE,
    args: [
      "--no-sandbox",
      "--disable-gpu",
      "--in-process-gpu", // as the next three, a quarter less processor time
      "--disable-software-rasterizer",
      "--disable-extensions",
      "--disable-features=IsolateOrigins,site-per-process,BackForwardCache,Translate,MediaRouter,OptimizationHints",
      ...args,
      "--disable-quic",
      "--no-first-run",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
    ],
  });
}
