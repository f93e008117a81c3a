// A JavaScript program in which each example names its failure. The first argument names the package.
const { serveStdio } = await import(process.argv[2]);

const ways = {
  good: (example) => example.output,
  exit: () => process.exit(7),
  segfault: () => process.kill(process.pid, "SIGSEGV"),
  hang_busy: () => {
    for (;;);
  },
};

await serveStdio({
  name: "misbehaves",
  seedCandidate: { prompt: "" },
  run: (example) => ways[example.way](example),
  score: () => 1,
});
