// Values that readers of JSON change arrive as they are, in rows and outputs.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { z } from "zod";
import { readRows } from "../src/index.js";
import { call, programOf, raw, served, temporaryFolder } from "./support.js";

const ID = "725653563933458433";
const WEI = "-1500000000000000000001";
const marked = (digits: string) => ({ $exact: ["integer", digits] });

function fileOf(name: string, content: string): string {
  const path = join(temporaryFolder(), name);
  writeFileSync(path, content);
  return path;
}

/** Sends a request whose JSON is given as text. */
async function sent(server: Awaited<ReturnType<typeof served>>, method: string, params: string): Promise<any> {
  return (await raw(server, { body: `{"jsonrpc":"2.0","id":1,"method":"${method}","params":${params}}` })).json;
}

it("a row's large integers, tuples, odd keys and half characters reach the program, and its output comes back", async () => {
  const seen: unknown[] = [];
  const server = await served(
    programOf({ run: (row) => seen.push(row) && row, score: (row, out) => Number(row === out) }),
  );
  const data = `{"raw": [${ID}, ${WEI}], "text": "${ID}, ${WEI}", "id": {"$exact": ["integer", "${ID}"]},
    "small": 9007199254740991, "float": 12345678901234567890.5, "power": 1e20, "fraction": 0.12345678901234567890,
    "pair": {"$exact": ["tuple", [1, {"$exact": ["text", "a\\\\ud83d"]}]]},
    "counts": {"$exact": ["object", [[1, "one"], ["$exact", {"$exact": ["number", "1e+21"]}]]]}}`;
  const answer = await sent(
    server,
    "evaluate",
    `{"candidate": {"rules": ""}, "batch": [{"id": "0", "data": ${data}}]}`,
  );
  expect(seen).toEqual([
    {
      raw: [BigInt(ID), BigInt(WEI)],
      text: `${ID}, ${WEI}`,
      id: BigInt(ID),
      small: 9007199254740991,
      float: Number("12345678901234567890.5"),
      power: 1e20,
      fraction: Number("0.1234567890123456789"),
      pair: [1, "a\ud83d"],
      counts: { 1: "one", $exact: 1e21 },
    },
  ]);
  const [{ status, output }] = answer.result.results;
  expect(status).toBe("ok");
  expect(output).toMatchObject({
    raw: [marked(ID), marked(WEI)],
    small: 9007199254740991,
    power: { $exact: ["number", "100000000000000000000"] },
    pair: [1, { $exact: ["text", "a\\ud83d"] }],
    counts: { 1: "one", $exact: { $exact: ["number", "1e+21"] } },
  });

  const scored: unknown[] = [];
  const scorer = await served(programOf({ score: (row, out) => Number(scored.push(row, out) > 0) }));
  const result = JSON.stringify({ status: "rollout", score: null, output, seconds: 0 });
  await sent(scorer, "score", `{"batch": [{"id": "0", "data": ${ID}}], "results": [${result}]}`);
  expect(scored).toEqual([BigInt(ID), seen[0]]);
});

it("the program makes records of outputs as it returned them", async () => {
  const makeReflectiveDataset = (_: unknown, { results }: any) => ({ rules: [{ Kind: typeof results[0].output }] });
  const results = [{ status: "ok", score: 1, output: marked(ID), seconds: 0 }];
  const eval_batch = { batch: [{ id: "0", data: 1 }], results };
  const params = { candidate: { rules: "" }, eval_batch, components_to_update: ["rules"] };
  const { result } = await call(await served(programOf({ makeReflectiveDataset })), "make_reflective_dataset", params);
  expect(result.dataset.rules).toEqual([{ Kind: "bigint" }]);
});

it("rows of files keep their digits, and are listed with markers", async () => {
  const file = fileOf("rows.jsonl", `{"id": ${ID}, "own": {"$exact": 1}, "half": "\\ud83d"}\n`);
  expect(await readRows(file)).toEqual([{ id: BigInt(ID), own: { $exact: 1 }, half: "\ud83d" }]);
  const seen: unknown[] = [];
  const server = await served(programOf({ datasets: { train: file }, run: (row) => seen.push(row) && row.id }));
  const { result } = await call(server, "list_examples", { split: "train" });
  expect(result.examples[0].data).toEqual({
    id: marked(ID),
    own: { $exact: ["object", [["$exact", 1]]] },
    half: { $exact: ["text", "\\ud83d"] },
  });
  const batch = [{ id: "0", split: "train" }];
  const params = { candidate: { rules: "" }, batch, capture_traces: true };
  const { results } = (await call(server, "evaluate", params)).result;
  expect(seen).toEqual(await readRows(file));
  expect(results[0].output).toEqual(marked(ID));
  const other = fileOf("other.json", `[{"id": ${ID}}]`);
  expect(await readRows(other, z.object({ id: z.bigint() }))).toEqual([{ id: BigInt(ID) }]);
  await expect(readRows(other, z.object({ id: z.number() }))).rejects.toThrow(
    "row 0: the row does not fit its schema: id",
  );
});

it.each(['["integer", 5]', '["integer", "x"]', '["set", []]', "1", '["text", "\\""]'])(
  "a malformed marker, %s, is refused by its path",
  async (content) => {
    const batch = `[{"id": "0", "data": 1}, {"id": "1", "data": {"$exact": ${content}}}]`;
    const { error } = await sent(
      await served(programOf()),
      "evaluate",
      `{"candidate": {"rules": ""}, "batch": ${batch}}`,
    );
    expect(error).toMatchObject({ code: -32602, data: { errors: [{ path: "batch[1].data" }] } });
  },
);

it("a line of blanks in a CSV file is no row, in a file of any number of columns", async () => {
  expect(await readRows(fileOf("a.csv", "text,label\na,x\n  \n\n\t\nb,\n"))).toEqual([
    { text: "a", label: "x" },
    { text: "b", label: "" },
  ]);
  expect(await readRows(fileOf("b.csv", 'text\na\n \n""\n7\n'))).toEqual([{ text: "a" }, { text: "" }, { text: "7" }]);
});
