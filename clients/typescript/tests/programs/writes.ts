// A program that writes between awaits while other examples run, served in the way that the first argument names, with
// the seconds that an example may take as the second argument.
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

const [way, exampleTimeoutS] = process.argv.slice(2);
const options = { concurrency: 8, exampleTimeoutS: Number(exampleTimeoutS) };
if (way === "stdio") await serveStdio(program, options);
else await serve(program, { ...options, json: true });
