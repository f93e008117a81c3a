// Only scores.
import { serveStdio } from "../../src/server/stdio.js";

await serveStdio<{ want: string }, string>({
  name: "judge",
  score: (example, output) => Number(output === example.want),
});
