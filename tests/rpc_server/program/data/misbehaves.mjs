// A JavaScript program in which each example names its failure. The first argument names the package.
const { serveStdio } = await import(process.argv[2]);

const ways = {
  good: (example) => example.output,
  exit: () => process.exit(7),
  segfault: () => process.kill(process.pid, "SIGSEGV"),
  hang: () => new Promise(() => {}),
  hang_busy: () => {
    for (;;);
  },
  print: (example) => {
    console.log('{"jsonrpc":"2.0","id":1,"result":"not an answer"}');
    process.stdout.write("half a line");
    return example.output;
  },
  flood: (example) => {
    for (let i = 0; i < 200; i++) process.stderr.write("x".repeat(65536));
    return example.output;
  },
  raise: () => {
    throw new RangeError("out of range");
  },
  not_json: () => new Map(),
};

await serveStdio({
  name: "misbehaves",
  seedCandidate: { prompt: "" },
  run: (example) => ways[example.way](example),
  score: (example) => (example.score === undefined ? 1 : example.score),
});
