// Writes between awaits while other examples run on the same loop; `node writes.mjs PACKAGE`.
import { setTimeout as sleep } from "node:timers/promises";

const { serveStdio } = await import(process.argv[2]);

await serveStdio(
  {
    name: "writes",
    seedCandidate: { prompt: "p" },
    run: async ({ print = [], hang, die }) => {
      for (const word of print) {
        console.log(word);
        await sleep(5);
      }
      if (die) process.kill(process.pid, "SIGKILL");
      if (hang) while (true);
      return "done";
    },
    score: () => 1,
  },
  { concurrency: 4 },
);
