// A program that prints wherever it can.
import { serveStdio } from "../../src/server/stdio.js";

console.log("while it is imported");

await serveStdio(
  {
    name: "chatty",
    seedCandidate: { rules: "" },
    run: async (example: { print?: string; hang?: boolean }, _, { signal }) => {
      console.log(example.print);
      console.info(example.print);
      process.stdout.write(`${example.print}\n`);
      if (example.hang) await new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
      return example.print ?? null;
    },
    score: () => 1,
  },
  { concurrency: 3, maxRequestBytes: 4096 },
);
