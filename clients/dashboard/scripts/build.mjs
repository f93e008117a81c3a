// Build the pages into the packages that serve them, or with --check compare what is there with what the source gives.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const root = fileURLToPath(new URL("../", import.meta.url));
const repository = new URL("../../../", import.meta.url);
const LARGEST = 150 * 1024;
/** The page of a run, and that of the service. */
const PAGES = [
  { entry: "src/main.tsx", html: "src/index.html", dist: "gepa_client/page/dist/" },
  { entry: "src/service/main.tsx", html: "src/service/index.html", dist: "gepa_service/api/page/dist/" },
];
const check = process.argv.includes("--check");

for (const page of PAGES) {
  const files = await built(page);
  const size = Object.values(files).reduce((sum, content) => sum + gzipSync(content, { level: 9 }).length, 0);
  if (size > LARGEST) {
    console.error(`the page in ${page.dist} takes ${size} bytes gzipped; at most ${LARGEST} are permitted`);
    process.exit(1);
  }
  const dist = fileURLToPath(new URL(page.dist, repository));
  mkdirSync(dist, { recursive: true });
  for (const [name, content] of Object.entries(files)) {
    if (!check) writeFileSync(dist + name, content);
    else if (!isSame(dist + name, content)) {
      console.error(`${page.dist}${name} is not what clients/dashboard gives: run npm run build there`);
      process.exitCode = 1;
    }
  }
  if (!process.exitCode) console.log(`${page.dist}: ${size} bytes gzipped`);
}

/** Return the files of a page by name. */
async function built({ entry, html, dist }) {
  const { outputFiles } = await build({
    absWorkingDir: root,
    entryPoints: { page: entry },
    outdir: "out",
    bundle: true,
    write: false,
    minify: true,
    format: "iife",
    target: ["es2022"],
    jsx: "automatic",
    jsxImportSource: "preact",
    legalComments: "none",
    banner: {
      js: `/* Contains Preact and uPlot under the MIT licence, and diff under the BSD licence: ${dist}LICENSES.txt */`,
    },
    charset: "ascii", // the exported file holds it inline and may be read in any encoding
    logLevel: "warning",
  });
  const files = { "index.html": readFileSync(root + html) };
  for (const file of outputFiles)
    files[file.path.endsWith(".css") ? "page.css" : "page.js"] = Buffer.from(file.contents);
  // The licence of each package inside the page goes with it.
  const licences = ["preact", "uplot", "diff"].map(
    (name) => `${name}\n\n${readFileSync(`${root}node_modules/${name}/LICENSE`, "utf8")}`,
  );
  files["LICENSES.txt"] = Buffer.from(licences.join("\n\n"));
  return files;
}

function isSame(path, content) {
  try {
    return readFileSync(path).equals(content);
  } catch {
    return false;
  }
}
