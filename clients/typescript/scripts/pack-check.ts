// Packs the package, installs it into an empty folder, and uses it there: from plain Node, from `tsc`, as on Workers.
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "evolverpc-pack-"));

function run(command: string, args: string[], cwd = folder): string {
  return execFileSync(command, args, { cwd, encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] });
}

function check(holds: boolean, what: string): void {
  if (!holds) throw new Error(`the packed package fails: ${what}`);
  console.log(`ok: ${what}`);
}

const USE = `
import { conformanceProgram, handler, MemoryStore, RpcClient, serve } from "evolverpc";

const server = await serve(
  {
    name: "shout",
    seedCandidate: { suffix: "" },
    run: (example, candidate) => example.text + candidate.suffix,
    score: (example, output) => (output === example.want ? 1 : 0),
  },
  { announce: () => {}, ownsProcess: false },
);
const client = new RpcClient(server.url, { token: server.token });
const { results } = await client.evaluate({
  candidate: { suffix: "!" },
  batch: [{ id: "0", data: { text: "hey", want: "hey!" } }],
});
await server.close();

const handle = handler(conformanceProgram, { token: "t", store: new MemoryStore() });
const health = await handle(new Request("http://localhost/health"));
console.log(JSON.stringify({ score: results[0].score, health: health.status }));
`;

const TYPED = `
import { type Candidate, type Program, RpcClient, serve } from "evolverpc";

interface Ticket {
  text: string;
  label: string;
}

const program: Program<Ticket, string> = {
  name: "tickets",
  seedCandidate: { rules: "" },
  run: (ticket, candidate, { signal, trace, usage }) => {
    signal.throwIfAborted();
    trace.push({ looked: ticket.text });
    usage.calls = 1;
    return candidate.rules ?? "";
  },
  score: (ticket, label) => [label === ticket.label ? 1 : 0, "expected " + ticket.label],
  datasets: { train: [{ text: "a", label: "b" }] },
};

export const listen = () => serve(program, { port: 0, exampleTimeoutS: 5 });
export const scores = async (candidate: Candidate): Promise<(number | null)[]> =>
  (await new RpcClient("https://example.com").evaluate({ candidate, batch: [] })).results.map(({ score }) => score);
// @ts-expect-error: a program needs something to run
export const wrong: Program = { name: "n", seedCandidate: { a: "" } };
`;

const TYPED_WEB = `
import { handler, MemoryStore } from "evolverpc/web";

export default {
  fetch: handler(
    { name: "n", seedCandidate: { a: "" }, run: (text: string) => text, score: () => 1 },
    { token: "t", store: new MemoryStore() },
  ),
};
`;

const STRICT = { strict: true, noEmit: true, target: "es2022", module: "nodenext", exactOptionalPropertyTypes: true };

function typechecks(name: string, source: string, options: object): void {
  const project = join(folder, name);
  mkdirSync(project);
  writeFileSync(join(project, "use.ts"), source);
  writeFileSync(join(project, "package.json"), '{ "type": "module" }');
  writeFileSync(join(project, "tsconfig.json"), JSON.stringify({ compilerOptions: { ...STRICT, ...options } }));
  run(join(root, "node_modules/.bin/tsc"), ["-p", project]);
  console.log(`ok: ${name}`);
}

try {
  const [packed] = JSON.parse(run("npm", ["pack", "--json", "--pack-destination", folder], root)) as [
    { filename: string; files: { path: string }[] },
  ];
  const paths = packed.files.map(({ path }) => path);
  check(
    ["LICENSE", "README.md", "dist/index.js", "dist/web.d.ts"].every((path) => paths.includes(path)),
    "has its files",
  );
  check(
    paths.some((path) => /^optimizer\/.+\.whl$/.test(path)) && paths.includes("optimizer/constraints.txt"),
    "carries the optimizer",
  );
  check(!paths.some((path) => /^(src|tests|scripts)\/|\/\./.test(path)), "has no others");

  writeFileSync(join(folder, "package.json"), '{ "name": "consumer", "private": true, "type": "module" }');
  run("npm", ["install", "--no-audit", "--no-fund", "--offline", join(folder, packed.filename)]);
  writeFileSync(join(folder, "use.js"), USE);
  check(run("node", ["use.js"]).trim() === '{"score":1,"health":200}', "works from plain Node");

  const exported = "import('evolverpc').then((all) => console.log('optimize' in all, 'handler' in all))";
  check(run("node", ["-e", exported]).trim() === "true true", "has everything on Node");
  check(run("node", ["-C", "workerd", "-e", exported]).trim() === "false true", "has no Node in it on Workers");

  const wrapper = "import('evolverpc/ai-sdk').then((all) => console.log(Object.keys(all).join()))";
  check(run("node", ["-e", wrapper]).trim() === "traced", "has its part for the AI SDK");

  const line = '{"jsonrpc":"2.0","id":1,"method":"discover"}';
  const response = execFileSync("npx", ["evolverpc-conformance", "--stdio"], {
    cwd: folder,
    input: `${line}\n`,
  }).toString();
  check(JSON.parse(response).result.program.name === "conformance", "has its command");

  const types = { types: ["node"], typeRoots: [join(root, "node_modules/@types")] };
  typechecks("types on Node", TYPED, { ...types, lib: ["es2022"] });
  typechecks("types on the web", TYPED_WEB, { types: [], lib: ["es2022", "dom"] });

  const own = JSON.parse(readFileSync(join(folder, "node_modules/evolverpc/package.json"), "utf8"));
  check(Object.keys(own.dependencies ?? {}).length === 0, "needs no other package");
} finally {
  rmSync(folder, { recursive: true, force: true });
}
