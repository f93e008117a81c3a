// Rows that hold the event loop for ever or for some seconds, that wait for ever, or that behave. The package is named by
// the first argument; behind `evolverpc serve --command` it is spoken to over stdio, else it listens by itself.
const { serve, serveStdio } = await import(process.argv[2]);

const cell = new Int32Array(new SharedArrayBuffer(4));
const hold = (seconds) => Atomics.wait(cell, 0, 0, seconds * 1000);

const ways = {
  behave: ({ number }) => number,
  hold: () => hold(Number.POSITIVE_INFINITY),
  hold_for: ({ held }) => hold(held),
  wait: () => new Promise(() => {}),
};

const program = {
  name: "hangs",
  seedCandidate: { prompt: "seed" },
  run: async (example, _candidate, { usage }) => {
    usage.calls = 1;
    await new Promise((resolve) => setTimeout(resolve, example.seconds * 1000));
    return ways[example.do](example);
  },
  score: () => 1,
};

if (process.env.GEPA_STDIO === undefined) {
  await serve(program, { exampleTimeoutS: Number(process.argv[3]), concurrency: 64 });
} else {
  await serveStdio(program, { concurrency: 64 });
}
