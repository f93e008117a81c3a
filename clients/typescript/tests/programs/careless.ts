// A program that loses a promise.
import { serve } from "../../src/server/serve.js";

await serve(
  {
    name: "careless",
    seedCandidate: { rules: "" },
    run: () => {
      Promise.reject(new Error("left alone"));
    },
    score: () => 1,
  },
  { json: true },
);
