// The program of units.py, and its optimization.
const { optimize } = await import(process.argv[2]);

const seedCandidate = { rules: "otherwise -> length", hint: "none" };
const units = { metre: "length", gram: "mass", second: "time", litre: "volume", mile: "length", day: "time" };
const rows = (start, end) =>
  Array.from({ length: end - start }, (_, index) => start + index).flatMap((number) =>
    Object.entries(units).map(([unit, label]) => ({ text: `${unit} ${number}`, label })),
  );

function run({ text }, { rules }) {
  for (const line of rules.split("\n")) {
    const [word, label] = line.split(" -> ");
    if (word === "otherwise" || text.includes(word)) return label;
  }
  return null;
}

const score = ({ label }, output) => (output === label ? [1, "right"] : [0, `expected ${label}`]);

function propose(candidate, dataset, components) {
  const lines = candidate.rules.split("\n");
  const wrong = (dataset.rules ?? []).find((record) => record.Feedback !== "right");
  if (wrong) lines.unshift(`${wrong.Inputs.text.split(" ")[0]} -> ${wrong.Feedback.split(" ").at(-1)}`);
  return Object.fromEntries(components.map((name) => [name, name === "rules" ? lines.join("\n") : candidate[name]]));
}

await optimize({
  program: { name: "units", seedCandidate, run, score },
  trainset: rows(0, 2),
  valset: rows(2, 5),
  testset: rows(5, 7),
  propose,
  maxMetricCalls: 150,
  moduleSelector: "all",
  proposals: "2",
  seed: Number(process.argv[3]),
  output: "typescript",
});
