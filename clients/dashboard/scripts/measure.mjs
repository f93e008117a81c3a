// Measure the page in Chromium: `node measure.mjs large ADDRESS` or `node measure.mjs live ADDRESS`; prints JSON.
// large: the page of a stored run, its first paint, its heat map, its memory. live: prints a line once the page is open;
// when standard input ends, [milliseconds since 1970, results drawn] of each frame that drew more results.
import { existsSync, readFileSync } from "node:fs";
import { chromium } from "playwright-core";

const [, , what, address] = process.argv;
const SECONDS = 4;
const executablePath = ["/usr/bin/chromium", "/usr/bin/google-chrome"].find((path) => existsSync(path));
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu", "--no-first-run"] });
try {
  const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
  page.setDefaultTimeout(120_000);
  console.log(JSON.stringify(what === "large" ? await large(page) : await live(page)));
} finally {
  await browser.close();
}

async function large(page) {
  await page.addInitScript(() => {
    window.marks = {};
    const noted = (name) =>
      requestAnimationFrame(() =>
        requestAnimationFrame(() => {
          window.marks[name] ??= performance.now();
        }),
      );
    const look = () => {
      const figures = [...document.querySelectorAll(".figures > div")].map(({ textContent }) => textContent);
      if (figures.some((text) => /^best .*candidate/.test(text))) noted("first");
      if (figures.includes("candidates1,000")) noted("all");
    };
    document.addEventListener("DOMContentLoaded", () => {
      new MutationObserver(look).observe(document.body, { subtree: true, childList: true, characterData: true });
    });
  });
  const session = await page.context().newCDPSession(page);
  await session.send("Performance.enable");
  await page.goto(address);
  await page.waitForFunction(() => window.marks.all !== undefined);
  const marks = await page.evaluate(() => window.marks);
  const opened = await metrics(session);
  const began = await page.evaluate(() => performance.now());
  await page.evaluate(() => {
    location.hash = "#/rows";
  });
  await page.locator(".map canvas").waitFor();
  const map = (await page.evaluate(() => performance.now())) - began;
  const frames = {};
  for (const [name, wheel] of [
    ["scroll", { deltaY: 37, deltaX: 23 }],
    ["zoom", { deltaY: -9, ctrlKey: true }],
  ]) {
    frames[name] = await page.evaluate(run, [wheel, SECONDS]);
  }
  await session.send("HeapProfiler.collectGarbage");
  return {
    first_data_s: marks.first / 1_000,
    all_candidates_s: marks.all / 1_000,
    page_cpu_s: opened.TaskDuration,
    page_script_s: opened.ScriptDuration,
    map_opened_s: map / 1_000,
    frames_per_s: frames,
    heap_mb: (await metrics(session)).JSHeapUsedSize / 1e6,
    tab_mb: tabMegabytes(),
  };
}

/** Send a wheel event a frame to the map; return the frames of a second. */
async function run([wheel, seconds]) {
  const map = document.querySelector(".map");
  const box = map.getBoundingClientRect();
  const place = { clientX: box.left + 200, clientY: box.top + 200, bubbles: true, cancelable: true };
  const began = performance.now();
  let frames = 0;
  while (performance.now() - began < seconds * 1_000) {
    const turn = frames % 120 < 60 ? 1 : -1;
    map.dispatchEvent(new WheelEvent("wheel", { ...place, ...wheel, deltaY: turn * wheel.deltaY }));
    await new Promise(requestAnimationFrame);
    frames += 1;
  }
  return (1_000 * frames) / (performance.now() - began);
}

async function live(page) {
  await page.addInitScript(() => {
    window.drawn = [];
    const put = CanvasRenderingContext2D.prototype.putImageData;
    CanvasRenderingContext2D.prototype.putImageData = function (image, ...rest) {
      const pixels = new Uint32Array(image.data.buffer);
      let count = 0;
      for (const pixel of pixels) count += pixel === 0 ? 0 : 1;
      requestAnimationFrame(() => window.drawn.push([performance.timeOrigin + performance.now(), count]));
      return put.call(this, image, ...rest);
    };
  });
  await page.goto(address);
  await page.locator(".figures").waitFor();
  await page.evaluate(() => {
    location.hash = "#/rows";
  });
  console.log("open");
  for await (const _ of process.stdin);
  return page.evaluate(() => window.drawn);
}

async function metrics(session) {
  const { metrics } = await session.send("Performance.getMetrics");
  return Object.fromEntries(metrics.map(({ name, value }) => [name, value]));
}

/** The memory of the largest renderer, its part of what processes share included. */
function tabMegabytes() {
  const pss = (id) => Number(/^Pss:\s+(\d+)/m.exec(readFileSync(`/proc/${id}/smaps_rollup`, "utf8"))?.[1] ?? 0);
  return Math.max(...renderers(process.pid).map((id) => pss(id) / 1_000));
}

function renderers(parent) {
  const children = readFileSync(`/proc/${parent}/task/${parent}/children`, "utf8").split(" ").filter(Boolean);
  return children.flatMap((id) => {
    const own = readFileSync(`/proc/${id}/cmdline`, "utf8").includes("--type=renderer") ? [Number(id)] : [];
    return [...own, ...renderers(id)];
  });
}
