// Takes the token of one file after another, beside other processes that do the same, and prints them all.
import { serverToken } from "../../src/server/token-file.js";

const [folder, rounds] = process.argv.slice(2);
process.stdout.write("ready\n");
process.stdin.once("data", () => {
  const tokens = Array.from({ length: Number(rounds) }, (_, at) => serverToken("127.0.0.1", `${folder}/${at}`).token);
  process.stdout.write(`${JSON.stringify(tokens)}\n`, () => process.exit(0));
});
