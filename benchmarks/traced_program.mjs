// The program of `traced_program.py` in TypeScript; the first argument is the number of steps, the second the package.
const [, , steps, evolverpc] = process.argv;
const { serve } = await import(evolverpc);
const OUTPUT = "x".repeat(2000);

await serve({
  name: "traced",
  seedCandidate: { rules: "Answer." },
  run: (_example, _candidate, { step }) => {
    for (let number = 0; number < Number(steps); number++) {
      step("rules", { question: "What is the capital of France?", number }, () => "Paris");
    }
    return OUTPUT;
  },
  score: () => 1,
});
