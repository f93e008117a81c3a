// Returns what a program can see of the server's variables and sockets.
import { execFileSync } from "node:child_process";
import { serve } from "../../src/server/serve.js";

await serve(
  {
    name: "listener",
    seedCandidate: { rules: "" },
    run: () => ({
      variables: Object.keys(process.env).filter((name) => ["GEPA_LISTEN", "GEPA_TOKEN"].includes(name)),
      inherited: execFileSync("sh", ["-c", "test -S /dev/fd/3 && echo yes || echo no"]).toString().trim(),
    }),
    score: () => 1,
  },
  { json: true },
);
