/** The rows that a program holds: listed by page, found by id, copied before use. */

import { SetupError } from "./configuration.js";
import { UnknownExample } from "./errors.js";
import type { DatasetInfo, Example, ListExamplesResult } from "./generated/types.js";
import { canonicalJson, type JsonValue, NotJson, toJsonValue } from "./json.js";
import { shown } from "./values.js";

const MAX_IDS_LISTED = 20;

export class Rows {
  readonly #splits: ReadonlyMap<string, readonly unknown[]>;

  /** `share`: whether `list_examples` returns the rows or only their ids. Throws `SetupError` if the rows are not JSON. */
  constructor(
    datasets: Record<string, readonly unknown[]>,
    private readonly share: boolean,
  ) {
    this.#splits = new Map(Object.entries(datasets).map(([split, rows]) => [split, rowsOf(split, rows)]));
  }

  get held(): boolean {
    return this.#splits.size > 0;
  }

  async describe(): Promise<Record<string, DatasetInfo>> {
    const infos = [...this.#splits].map(async ([split, rows]): Promise<[string, DatasetInfo]> => {
      return [split, { size: rows.length, digest: `sha256:${await digestText(canonicalJson(rows))}` }];
    });
    return Object.fromEntries(await Promise.all(infos));
  }

  /** Throws `UnknownExample` for a split that is not held. */
  list(split: string, offset: number, limit: number): ListExamplesResult {
    const rows = this.#splits.get(split);
    if (rows === undefined) throw new UnknownExample(undefined, { split, ids: [] });
    const page = rows.slice(offset, offset + limit);
    return {
      examples: page.map((data, at) => ({ id: String(offset + at), split, ...(this.share ? { data } : {}) })),
      total: rows.length,
    };
  }

  /** Return every example with its data, copied, so that a program that changes its input affects no other example. */
  withData(batch: readonly Example[]): { id: string; data: unknown }[] {
    const lost = batch.filter(({ id, split }) => split !== undefined && this.#find(split, id) === undefined);
    const split = lost[0]?.split;
    if (split !== undefined) {
      const ids = lost.filter((example) => example.split === split).map(({ id }) => id);
      throw new UnknownExample(undefined, { split, ids: ids.slice(0, MAX_IDS_LISTED) });
    }
    return batch.map(({ id, data, split }) => ({
      id,
      data: split === undefined ? data : structuredClone(this.#find(split, id)?.data),
    }));
  }

  #find(split: string, id: string): { data: unknown } | undefined {
    const rows = this.#splits.get(split);
    if (rows === undefined || !/^(0|[1-9]\d*)$/.test(id)) return undefined;
    const data = rows[Number(id)];
    return data === undefined ? undefined : { data };
  }
}

function rowsOf(split: string, rows: unknown): JsonValue[] {
  if (!Array.isArray(rows)) throw new SetupError(`\`datasets.${split}\` must be an array of rows, not ${shown(rows)}`);
  try {
    return rows.map((row, at) => toJsonValue(row, `datasets.${split}[${at}]`));
  } catch (error) {
    if (error instanceof NotJson) throw new SetupError(`rows must be JSON: ${error.message}`);
    throw error;
  }
}

/** The SHA-256 of a text, in hexadecimal. */
export async function digestText(text: string): Promise<string> {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
