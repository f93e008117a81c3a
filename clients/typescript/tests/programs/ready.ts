// A program that has training rows alone.
import { serve } from "../../src/server/serve.js";

await serve({ name: "ready", seedCandidate: { rules: "" }, datasets: { train: [1] }, run: () => 1, score: () => 1 });
