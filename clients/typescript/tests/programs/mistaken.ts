// A program that has nothing to run.
import { serve } from "../../src/serve.js";

await serve({ name: "mistaken", seedCandidate: { rules: "" } } as never);
