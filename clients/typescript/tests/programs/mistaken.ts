// A program that has nothing to run.
import { serve } from "../../src/server/serve.js";

await serve({ name: "mistaken", seedCandidate: { rules: "" } } as never);
