// A program that writes between awaits while other examples run, served in the way that the argument names.
import { setTimeout as sleep } from "node:timers/promises";
import { serve, serveStdio } from "../../src/index.js";

interface Example {
  words?: string[];
  flood?: number;
  fail?: string;
  hang?: boolean;
}

const program = {
  name: "writes",
  seedCandidate: { rules: "" },
  run: async ({ words = [], flood = 0, fail, hang }: Example): Promise<string> => {
    for (const word of words) {
      console.log(word);
      process.stderr.write(new TextEncoder().encode(`${word}!\n`));
      await sleep(2);
    }
    for (let at = 0; at < flood; at++) console.log(String(at).padStart(9, "0"));
    if (fail !== undefined) throw new Error(fail);
    if (hang) await new Promise(() => {});
    return "done";
  },
  score: () => {
    console.info("scored");
    return 1;
  },
};

if (process.argv[2] === "stdio") await serveStdio(program, { maxConcurrency: 8 });
else await serve(program, { maxConcurrency: 8, exampleTimeoutS: 0.5, json: true });
