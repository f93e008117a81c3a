// Rows from files, arrays and iterables: read as the optimizer reads them, and checked against a Standard Schema.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { type } from "arktype";
import fc from "fast-check";
import * as v from "valibot";
import { describe, expect, expectTypeOf, it } from "vitest";
import * as z from "zod";
import { type Program, readRows, SetupError, splitRows } from "../src/index.js";
import { csvRecords } from "../src/rows/row-sources.js";
import { call, evaluate, served, temporaryFolder } from "./support.js";

function fileOf(name: string, content: string | Uint8Array): string {
  const path = join(temporaryFolder(), name);
  writeFileSync(path, content);
  return path;
}

async function* streamed<Row>(...rows: Row[]): AsyncGenerator<Row> {
  yield* rows;
}

const SCHEMAS = {
  zod: z.object({ text: z.string(), label: z.enum(["a", "b"]) }),
  valibot: v.object({ text: v.string(), label: v.picklist(["a", "b"]) }),
  arktype: type({ text: "string", label: "'a' | 'b'" }),
};

describe("sources", () => {
  it.each([
    [
      "my rows.jsonl",
      '\ufeff{"text":"x\u2028","n":1}\r\n\n{"text":"y","n":2}',
      [
        { text: "x\u2028", n: 1 },
        { text: "y", n: 2 },
      ],
    ],
    ["rows.json", '[{"text":"x"}]', [{ text: "x" }]],
    [
      "ROWS.CSV",
      '\ufefftext,label\r\n"a ""b"", c\nd",1\r\n\r\n,',
      [
        { text: 'a "b", c\nd', label: "1" },
        { text: "", label: "" },
      ],
    ],
  ])("%s is read without its byte order mark and its empty lines", async (name, content, rows) => {
    const file = fileOf(name, content);
    expect(await readRows(file)).toEqual(rows);
    expect(await readRows(pathToFileURL(file))).toEqual(rows);
  });

  it("arrays, other iterables and asynchronous iterables are read", async () => {
    for (const source of [[1, 2], new Set([1, 2]), streamed(1, 2)]) expect(await readRows(source)).toEqual([1, 2]);
  });

  it("every table of texts survives CSV", () => {
    const cell = fc
      .string({ unit: "grapheme" })
      .chain((text) => fc.constantFrom(text, `${text}"`, `${text},`, `${text}\r\n`));
    fc.assert(
      fc.property(
        fc.array(fc.array(cell, { minLength: 2, maxLength: 3 })),
        fc.constantFrom("\n", "\r\n"),
        (table, end) => {
          const text = table.map((row) => row.map((value) => `"${value.replaceAll('"', '""')}"`).join(",")).join(end);
          expect([...csvRecords("rows.csv", text)].map(({ values }) => values)).toEqual(table);
        },
      ),
    );
  });

  it.each([
    ["rows.jsonl", '{"a":1}\n{"a":', /rows\.jsonl: line 2: not JSON/],
    ["rows.jsonl", "[1]", /rows\.jsonl: line 1 is not a JSON object/],
    ["rows.json", "{}", /rows\.json: not an array of rows/],
    ["rows.json", "[{}, 3]", /rows\.json: row 1 is not a JSON object/],
    ["rows.csv", 'a,b\n"x\ny",1\n2\n', /rows\.csv: line 4 has 1 values for 2 columns/],
    ["rows.csv", 'a,b\n"x"y,1\n', /rows\.csv: line 2: a value in quotes/],
    ["rows.csv", 'a,b\n1,"x\n', /rows\.csv: line 2: a value in quotes has no end/],
    ["rows.csv", "a,a\n", /the header has the name "a" twice/],
    ["rows.csv", "a;b\n1;2\n", /columns are separated by commas/],
    ["rows.csv", "a,b\n", /rows\.csv: holds no rows/],
    ["rows.jsonl", new Uint8Array([0xff]), /not UTF-8 text/],
    ["rows.txt", "", /rows are read from \.jsonl, \.json or \.csv/],
  ])("%s with %j is refused", async (name, content, message) => {
    const refused = readRows(fileOf(name, content));
    await expect(refused).rejects.toThrow(SetupError);
    await expect(refused).rejects.toThrow(message);
  });

  it("a missing file, an address and a used iterator are refused", async () => {
    await expect(readRows("none.jsonl")).rejects.toThrow(`none.jsonl: there is no such file in ${process.cwd()}`);
    await expect(readRows(new URL("https://x.test/a.jsonl"))).rejects.toThrow(/download it first/);
    await expect(readRows(3 as never)).rejects.toThrow("`rows` must be rows: an array, another iterable");
    const once = streamed({});
    await readRows(once);
    await expect(readRows(once)).rejects.toThrow(/an iterator that was read before has none left/);
  });
});

describe("splits", () => {
  it("rows are split at random, each into one split, and as before with the same seed", () => {
    const rows = Array.from({ length: 1000 }, (_, at) => at);
    const split = splitRows(rows, { val: 0.2, test: 0.3 }, 7);
    expect([split.val.length, split.test.length, split.train.length]).toEqual([200, 300, 500]);
    expect([...split.val, ...split.test, ...split.train].sort((one, other) => one - other)).toEqual(rows);
    expect(splitRows(rows, { val: 0.2, test: 0.3 }, 7)).toEqual(split);
    for (const seed of [0, 8, 2 ** 40, 2 ** 40 + 7])
      expect(splitRows(rows, { val: 0.2 }, seed).val).not.toEqual(split.val);
    const mean = split.val.reduce((sum, row) => sum + row, 0) / 200;
    expect(Math.abs(mean - 500)).toBeLessThan(80); // four standard deviations
    expect(splitRows(rows.slice(0, 10), { val: 0.01 }).val).toHaveLength(1);
    expect(rows[0]).toBe(0);
  });

  it("shares that leave nothing to train on are refused", () => {
    expect(() => splitRows([1], { val: 0.5 })).toThrow("1 rows are too few: none is left to train on");
    expect(() => splitRows([1, 2], { val: 0.5, test: 0.5 })).toThrow(SetupError);
    expect(() => splitRows([1, 2], { val: 1 })).toThrow("the share of `val` must be between 0 and 1, not 1");
    expect(() => splitRows([1, 2], { train: 0.5 })).toThrow("`train` has no share of its own");
    expect(() => splitRows([1, 2], { val: 0.5 }, -1)).toThrow("`seed` must be a whole number");
  });
});

describe("schemas", () => {
  it.each(Object.entries(SCHEMAS))(
    "%s: an invalid row is named with its file, line, field and fault",
    async (_, schema) => {
      const file = fileOf("rows.jsonl", '{"text":"x","label":"a"}\n\n{"text":1,"label":"c"}');
      await expect(readRows(file, schema)).rejects.toThrow(
        /rows\.jsonl: line 3: the row does not fit its schema: (?=.*text: )(?=.*label: )/,
      );
      const rows = await readRows([{ text: "x", label: "a" }], schema);
      expectTypeOf(rows).toEqualTypeOf<{ text: string; label: "a" | "b" }[]>();
      expect(rows).toEqual([{ text: "x", label: "a" }]);
    },
  );

  it("rows are what the schema returns, also if it answers later", async () => {
    const schema = z.object({ n: z.coerce.number().refine(async (n) => n < 3) });
    expect(await readRows(fileOf("n.csv", "n\n1\n2\n"), schema)).toEqual([{ n: 1 }, { n: 2 }]);
    await expect(readRows([{ n: 1 }, { n: 3 }], schema)).rejects.toThrow(
      /^rows\[1\]: the row does not fit its schema: n: /,
    );
  });

  it("a nested path is written as in code, and only the first faults are named", async () => {
    const schema = z.object({ turns: z.array(z.object({ role: z.string() })) });
    const turns = Array.from({ length: 7 }, () => ({}));
    await expect(readRows([{ turns }], schema)).rejects.toThrow(
      /turns\[0\]\.role: .*turns\[4\]\.role: [^;]*; and 2 more$/,
    );
  });

  it("a schema that throws and a value that is no schema are refused", async () => {
    const throws = z.any().transform(() => {
      throw new RangeError("out");
    });
    await expect(readRows([1], throws)).rejects.toThrow(
      "rows[0]: the row does not fit its schema: the schema threw RangeError: out",
    );
    await expect(readRows([1], {} as never)).rejects.toThrow("`schema` must be a Standard Schema, such as one of zod");
  });
});

describe("a program with a row schema", () => {
  const dated = z.object({ day: z.iso.date().transform((day) => new Date(day)), want: z.number().default(2026) });

  it("gets what the schema returns in run and score, and the row travels as it is", async () => {
    const server = await served({
      name: "years",
      seedCandidate: { rules: "" },
      rowSchema: dated,
      datasets: { train: fileOf("rows.jsonl", '{"day":"2026-01-02"}') },
      run: (row) => {
        expectTypeOf(row).toEqualTypeOf<{ day: Date; want: number }>();
        return row.day.getUTCFullYear();
      },
      score: (row, year) => Number(row.want === year),
    });
    const [held, sent] = await evaluate(server, [{ day: "2025-01-02" }, { day: "2026-01-02" }]);
    expect([held.score, sent.score]).toEqual([0, 1]);
    const listed = await call(server, "list_examples", { split: "train" });
    expect(listed.result.examples).toEqual([{ id: "0", split: "train", data: { day: "2026-01-02" } }]);
  });

  it("infers the type of a row in batches, scorers and typed programs", () => {
    const batch = { name: "b", rowSchema: dated, evaluate: () => [], seedCandidate: {} } satisfies Program<
      z.output<typeof dated>
    >;
    expectTypeOf(batch.name).toBeString();
    void (() =>
      served({
        name: "scorer",
        rowSchema: SCHEMAS.arktype,
        datasets: { train: "rows.jsonl" },
        score: (row) => {
          expectTypeOf(row.label).toEqualTypeOf<"a" | "b">();
          return 1;
        },
      }));
  });

  it("refuses a call with a row that does not fit, before anything runs, and has room for the next", async () => {
    let ran = 0;
    const server = await served(
      { name: "p", seedCandidate: { rules: "" }, rowSchema: SCHEMAS.zod, run: () => ++ran, score: () => 1 },
      { maxQueue: 0, concurrency: 2 },
    );
    const good = { text: "x", label: "a" };
    for (const _ of [1, 2]) {
      const batch = [
        { id: "7", data: good },
        { id: "8", data: { text: "x" } },
      ];
      const { error } = await call(server, "evaluate", { candidate: { rules: "" }, batch });
      expect(error.data.errors[0].path).toBe("batch[1].data");
      expect(error.data.errors[0].message).toMatch(
        /^the row with id 8 does not fit the program's `rowSchema`: label: /,
      );
    }
    expect(ran).toBe(0);
    expect((await evaluate(server, [good, good])).map(({ score }) => score)).toEqual([1, 1]);
  });

  it("checks the rows of batches and of scorers too", async () => {
    const batches = await served({
      name: "batches",
      seedCandidate: { rules: "" },
      rowSchema: dated,
      evaluate: (_, batch) => batch.map(({ data }) => data.day.getUTCDate()),
    });
    expect((await evaluate(batches, [{ day: "2026-01-02" }]))[0].score).toBe(2);
    const scorer = await served({ name: "scorer", rowSchema: dated, score: ({ day }) => day.getUTCDate() });
    const score = (data: object) =>
      call(scorer, "score", {
        batch: [{ id: "0", data }],
        results: [{ status: "rollout", output: 1, score: null, seconds: 0 }],
      });
    expect((await score({ day: "2026-01-03" })).result.results[0].score).toBe(3);
    expect((await score({ day: "soon" })).error.data.errors[0].path).toBe("batch[0].data");
  });

  it("does not start with a row of its own that does not fit", async () => {
    const program = { name: "p", seedCandidate: { rules: "" }, rowSchema: SCHEMAS.valibot, run: () => 1 };
    const unfit = { ...program, datasets: { val: [{ text: "x", label: "c" } as never] } };
    await expect(served(unfit)).rejects.toThrow(/^datasets\.val\[0\]: the row does not fit its schema: label: /);
    await expect(served({ ...program, rowSchema: 3 as never })).rejects.toThrow(
      "`rowSchema` must be a Standard Schema",
    );
  });
});
