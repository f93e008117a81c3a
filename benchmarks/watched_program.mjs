// The program of `watched_program.py` in TypeScript, with `fetch`; its argument is the package.
const { serve } = await import(process.argv[2]);
const url = process.env.MODEL_URL;
const asked = { model: "m", messages: [{ role: "user", content: "Which of these is right? ".repeat(40) }] };
const headers = { "content-type": "application/json" };

const ways = {
  once: async () => {
    await (await fetch(url, { method: "POST", headers, body: JSON.stringify(asked) })).json();
  },
  stream: async () => {
    const answer = await fetch(url, { method: "POST", headers, body: JSON.stringify({ ...asked, stream: true }) });
    for await (const _ of answer.body);
  },
};

await serve({
  name: "watched",
  seedCandidate: { rules: "Answer." },
  run: async (example) => {
    for (let call = 0; call < 20; call++) await ways[example.way]();
    return "answered";
  },
  score: () => 1,
});
