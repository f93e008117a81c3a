/** The rows that a program holds: listed by page, found by id, copied before use. */

import { digestOfJson } from "../base/digest.js";
import type { JsonValue } from "../base/json.js";
import { invalidParams, unpackedParam } from "../base/validate.js";
import { UnknownExample } from "../generated/errors.js";
import type { DatasetInfo, Example, ListExamplesResult } from "../generated/types.js";
import { jsonRows, type RowSource } from "./row-sources.js";
import { type StandardSchema, validated } from "./standard-schema.js";

const MAX_IDS_LISTED = 20;

/** An example of a call with its data. */
export interface FilledExample {
  id: string;
  data: unknown;
}

export class Rows {
  private constructor(
    private readonly splits: ReadonlyMap<string, readonly JsonValue[]>,
    private readonly schema: StandardSchema | undefined,
    private readonly share: boolean,
  ) {}

  /**
   * Read the rows of all splits. `share`: whether `list_examples` returns the rows or only their ids.
   *
   * Throws `SetupError` if rows cannot be read, are not JSON or do not fit the schema.
   */
  static async create(
    datasets: Record<string, RowSource>,
    schema: StandardSchema | undefined,
    share: boolean,
  ): Promise<Rows> {
    const splits = new Map<string, readonly JsonValue[]>();
    for (const [split, source] of Object.entries(datasets)) {
      splits.set(split, await jsonRows(`datasets.${split}`, source, schema));
    }
    return new Rows(splits, schema, share);
  }

  get held(): boolean {
    return this.splits.size > 0;
  }

  async describe(): Promise<Record<string, DatasetInfo>> {
    const infos = [...this.splits].map(async ([split, rows]): Promise<[string, DatasetInfo]> => {
      return [split, { size: rows.length, digest: `sha256:${await digestOfJson(rows)}` }];
    });
    return Object.fromEntries(await Promise.all(infos));
  }

  /** Throws `UnknownExample` for a split that is not held. */
  list(split: string, offset: number, limit: number): ListExamplesResult {
    const rows = this.splits.get(split);
    if (rows === undefined) throw new UnknownExample(undefined, { split, ids: [] });
    const page = rows.slice(offset, offset + limit);
    return {
      examples: page.map((data, at) => ({ id: String(offset + at), split, ...(this.share ? { data } : {}) })),
      total: rows.length,
    };
  }

  /** Return every example with its data, unpacked and copied, so that a program that changes its input affects no other example. */
  withData(batch: readonly Example[]): FilledExample[] {
    const lost = batch.filter(({ id, split }) => split !== undefined && this.#find(split, id) === undefined);
    const split = lost[0]?.split;
    if (split !== undefined) {
      const ids = lost.filter((example) => example.split === split).map(({ id }) => id);
      throw new UnknownExample(undefined, { split, ids: ids.slice(0, MAX_IDS_LISTED) });
    }
    return batch.map(({ id, data, split }, at) => {
      const held = split === undefined ? data : this.#find(split, id);
      return { id, data: unpackedParam(held, `batch[${at}].data`) };
    });
  }

  /** Return the data of each example whose row `list` does not show; undefined for others. All rows are known. */
  hidden(batch: readonly Example[]): (JsonValue | undefined)[] {
    return batch.map(({ id, split }) => (this.share || split === undefined ? undefined : this.#find(split, id)));
  }

  /** Return the rows as the program gets them. Throws `InvalidParams` for the first that does not fit the schema. */
  async checked(batch: readonly FilledExample[]): Promise<readonly FilledExample[]> {
    const { schema } = this;
    if (schema === undefined) return batch;
    const check = async (example: FilledExample, at: number): Promise<FilledExample> => {
      const result = await validated(schema, example.data);
      if ("value" in result) return { id: example.id, data: result.value };
      const message = `the row with id ${example.id} does not fit the program's \`rowSchema\`: ${result.fault}`;
      throw invalidParams({ path: `batch[${at}].data`, message });
    };
    return Promise.all(batch.map(check));
  }

  #find(split: string, id: string): JsonValue | undefined {
    return /^(0|[1-9]\d*)$/.test(id) ? this.splits.get(split)?.[Number(id)] : undefined;
  }
}
