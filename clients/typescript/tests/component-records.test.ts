// The records of single steps, as the Python worker makes them of the same steps.
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { PythonRandom } from "../src/base/python-random.js";
import { defaultReflectiveDataset } from "../src/evaluate/reflection.js";
import { call, programOf, served } from "./support.js";

interface Golden {
  limits: number[];
  late: number[];
  rows: { seed: number; drawn: number[] }[];
}

// Made by Python 3.11: for each seed `rng = random.Random(seed)` and 8 rounds of `rng.choice(range(n))` for each of
// `limits`; `late`: the last 5 of 3,000 times `choice(range(1000))` with seed 7.
const golden = JSON.parse(readFileSync(new URL("golden/python-random.json", import.meta.url), "utf8")) as Golden;

const range = (size: number): number[] => Array.from({ length: size }, (_, at) => at);

describe("random numbers", () => {
  it.each(golden.rows)("with seed $seed are those of Python", ({ seed, drawn }) => {
    const random = new PythonRandom(seed);
    const choose = (limit: number) =>
      random.choice(limit < 100_000 ? range(limit) : new Proxy([] as number[], large(limit)));
    expect(range(8).flatMap(() => golden.limits.map(choose))).toEqual(drawn);
  });

  it("continue beyond the first block of the generator", () => {
    const random = new PythonRandom(7);
    const items = range(1000);
    expect(
      range(3000)
        .map(() => random.choice(items))
        .slice(-5),
    ).toEqual(golden.late);
  });
});

/** A list of whole numbers that takes no memory. */
function large(length: number): ProxyHandler<number[]> {
  return { get: (_, key) => (key === "length" ? length : Number(key)) };
}

const ok = { status: "ok" as const, score: 1, seconds: 0 };

async function recordsOf(trajectories: unknown[], components: string[], options: any = {}): Promise<any> {
  return (await answerFor(trajectories, components, options)).dataset;
}

function answerFor(trajectories: unknown[], components: string[], { seed = 0, ...more }: any = {}): any {
  const results = trajectories.map((trajectory) => ({ ...ok, output: "out", trajectory, ...more }));
  const batch = trajectories.map((_, at) => ({ id: String(at), data: { row: at } }));
  return defaultReflectiveDataset({ batch, results }, components, Array.isArray, seed);
}

const planned = { component: "planner", inputs: { question: "why?" }, outputs: { plan: "look" } };

it("each component has the records of its own steps, nested ones included, in the order of the examples", async () => {
  const nested = {
    name: "search",
    inputs: {},
    outputs: [],
    steps: [{ component: "writer", inputs: { a: 1 }, outputs: 2 }],
  };
  const dataset = await recordsOf(
    [{ steps: [planned] }, { steps: [nested], trace: ["seen"] }],
    ["planner", "writer", "other"],
  );
  expect(dataset).toEqual({
    planner: [{ Inputs: { question: "why?" }, "Generated Outputs": { plan: "look" }, Feedback: "Score: 1.0" }],
    writer: [{ Inputs: { a: 1 }, "Generated Outputs": 2, Feedback: "Score: 1.0" }],
    other: [],
  });
});

it("an example without steps of components gives the record of the whole example, for each component", async () => {
  const whole = { Inputs: { row: 1 }, "Generated Outputs": "out", Feedback: "Score: 1.0" };
  const dataset = await recordsOf(
    [{ steps: [planned] }, { data: 1 }, ["asked"], { steps: ["a text", { name: "search", inputs: {}, outputs: 1 }] }],
    ["planner", "writer"],
  );
  expect(dataset.writer).toEqual([
    whole,
    { ...whole, Inputs: { row: 2 }, Trace: ["asked"] },
    { ...whole, Inputs: { row: 3 } },
  ]);
  expect(dataset.planner.slice(1)).toEqual(dataset.writer);
});

it("without any step all components have the records of the examples", async () => {
  const dataset = await recordsOf([{ steps: [] }, ["asked"]], ["planner", "writer"]);
  expect(dataset.planner).toHaveLength(2);
  expect(dataset.writer).toEqual(dataset.planner);
});

it("of several steps one is drawn, by component and then by example, as Python draws", async () => {
  const steps = range(7).map((at) => ({ component: at % 2 ? "a" : "b", inputs: { at }, outputs: at }));
  const trajectories = range(6).map((at) => ({ steps: steps.slice(0, at + 2) }));
  const drawn = async (seed: number | undefined) => {
    const dataset = await recordsOf(trajectories, ["b", "a"], { seed });
    return ["b", "a"].map((component) => dataset[component].map((record: any) => record["Generated Outputs"]));
  };
  // rng = random.Random(seed); for each component, for each example: rng.choice([its steps])
  expect(await drawn(undefined)).toEqual([
    [0, 2, 0, 2, 4, 6],
    [1, 1, 3, 3, 5, 1],
  ]);
  expect(await drawn(2 ** 53 - 1)).toEqual([
    [0, 0, 0, 0, 0, 0],
    [1, 1, 3, 1, 3, 3],
  ]);
});

it("the first step that failed is taken, and draws nothing", async () => {
  const broken = { component: "planner", inputs: {}, outputs: null, error: { type: "TypeError", message: "no plan" } };
  const later = { ...broken, error: { type: "RangeError", message: "later" } };
  const record = { Inputs: {}, "Generated Outputs": "", Feedback: "This step failed: TypeError: no plan\nwrong" };
  const several = { steps: range(8).map((at) => ({ ...planned, outputs: at })) };
  for (const seed of range(5)) {
    const failing = await recordsOf([{ steps: [planned, planned, broken, later] }, several], ["planner"], {
      seed,
      feedback: "wrong",
    });
    const others = await recordsOf([several], ["planner"], { seed, feedback: "wrong" });
    expect(failing.planner).toEqual([record, ...others.planner]);
  }
});

it("feedback on the component comes before that on the example", async () => {
  const more = { feedback: "all wrong", component_feedback: { planner: "no plan" } };
  const steps = [planned, { component: "writer", inputs: null, outputs: "x" }];
  const dataset = await recordsOf([{ steps }], ["planner", "writer"], more);
  expect(dataset.planner[0].Feedback).toBe("no plan");
  expect(dataset.writer[0]).toEqual({ Inputs: {}, "Generated Outputs": "x", Feedback: "all wrong" });
});

it("feedback on a component is in the records of examples without steps", async () => {
  const more = { feedback: "all wrong", component_feedback: { planner: "no plan" } };
  const whole = { Inputs: { row: 0 }, "Generated Outputs": "out" };
  expect(await recordsOf([undefined], ["planner", "writer"], more)).toEqual({
    planner: [{ ...whole, Feedback: "no plan" }],
    writer: [{ ...whole, Feedback: "all wrong" }],
  });
});

it("a parse failure shows the raw answer and the expected structure", async () => {
  const step = { component: "planner", inputs: {}, outputs: null, raw: "I would look." };
  const error = { type: "parse_failure", message: "no JSON" };
  const recordOf = async (failed: object) =>
    (await recordsOf([{ steps: [failed] }], ["planner"], { feedback: "wrong" })).planner[0];
  const first = await recordOf({ ...step, error, expected: '{"plan": ...}' });
  const second = await recordOf({ ...step, error });
  expect(first).toEqual({
    Inputs: {},
    "Generated Outputs":
      "Couldn't parse the output as per the expected output format. The model's raw response was:\n```\nI would look.\n```\n\n",
    Feedback: 'Your output failed to parse. Follow this structure:\n{"plan": ...}',
  });
  expect(second.Feedback).toBe("Your output failed to parse: no JSON");
});

it("the first chat history is rendered at the beginning of the inputs", async () => {
  const history = [
    { role: "user", content: "Grüße" },
    { role: "assistant", content: [{ type: "text", text: "hi" }] },
  ];
  const inputs = { question: "why?", history, second: history, empty: [], texts: ["role"] };
  const { planner } = await recordsOf([{ steps: [{ component: "planner", inputs, outputs: 1 }] }], ["planner"]);
  const [record] = planner;
  expect(Object.keys(record.Inputs)).toEqual(["Context", "question", "second", "empty", "texts"]);
  expect(record.Inputs.Context).toBe(
    '```json\n  0: {"role":"user","content":"Grüße"}\n' +
      '  1: {"role":"assistant","content":[{"type":"text","text":"hi"}]}\n```',
  );
});

it("a list of other objects is no chat history", async () => {
  const inputs = { rows: [{ role: "user" }], more: [{ role: 1, content: "" }] };
  const { planner } = await recordsOf([{ steps: [{ component: "planner", inputs, outputs: 1 }] }], ["planner"]);
  const [record] = planner;
  expect(record.Inputs).toEqual(inputs);
});

it("an image as the text of a data URL is given by reference, once", async () => {
  const url = "data:image/png;base64,iVBORw0KGgo=";
  const large = `data:image/png;base64,${"A".repeat(8_000_000)}`;
  const history = [{ role: "user", content: url }];
  const inputs = { history, url, nested: [{ url }], text: `see ${url}`, none: "data:image/png;base64,no!", large };
  const steps = [{ component: "planner", inputs, outputs: url }];
  const { dataset, images } = await answerFor([{ steps }], ["planner"]);
  const [id = ""] = Object.keys(images);
  // hashlib.sha256(b"image/pngiVBORw0KGgo=").hexdigest()[:32], as the Python worker names it
  expect(images).toEqual({ "577093d4c72c0dcde7e5be8263ddee4a": { media_type: "image/png", base64: "iVBORw0KGgo=" } });
  expect(dataset.planner).toEqual([
    {
      Inputs: {
        Context: `\`\`\`json\n  0: {"role":"user","content":{"$image":"${id}"}}\n\`\`\``,
        url: { $image: id },
        nested: [{ url: { $image: id } }],
        text: inputs.text,
        none: inputs.none,
        large: { type: "image/png", repr: "an image of 8000000 characters in base64" },
      },
      "Generated Outputs": { $image: id },
      Feedback: "Score: 1.0",
    },
  ]);
});

it("the seed of the call decides which step is drawn", async () => {
  const server = await served(programOf());
  const steps = range(50).map((at) => ({ component: "rules", inputs: {}, outputs: at }));
  const drawn = async (seed?: number) => {
    const results = [{ ...ok, output: null, trajectory: { steps } }];
    const eval_batch = { batch: [{ id: "0", data: 1 }], results };
    const params = { candidate: { rules: "" }, eval_batch, components_to_update: ["rules"], seed };
    const { result } = await call(server, "make_reflective_dataset", params);
    return result.dataset.rules[0]["Generated Outputs"];
  };
  expect([await drawn(), await drawn(0), await drawn(1), await drawn(2 ** 53 - 1)]).toEqual([24, 24, 8, 6]);
});
