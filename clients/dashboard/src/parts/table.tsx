/** A table that scrolls by itself; its first column names the row. On a narrow page the cells of a row are stacked. */

import type { ComponentChildren } from "preact";
import { line } from "../text/visible";
import { Inline } from "./text";

/** A cell that is a string may be a text of a program. Numbers stand at the right. */
export type Column<Item> = readonly [
  name: ComponentChildren,
  cell: (item: Item, at: number) => ComponentChildren,
  kind?: "number",
];

interface Props<Item> {
  readonly label: string;
  readonly items: readonly Item[];
  readonly columns: readonly Column<Item>[];
  readonly tall?: boolean;
  readonly caption?: string;
  readonly isChosen?: (item: Item) => boolean;
}

export function Table<Item>({ label, items, columns, tall = false, caption, isChosen }: Props<Item>) {
  const names = columns.map(([name]) => (typeof name === "string" ? line(name, 60) : undefined)); // for stacked cells
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls takes the focus
    <section class={tall ? "scroll tall" : "scroll"} aria-label={label} tabIndex={0}>
      <table>
        {caption !== undefined && <caption>{caption}</caption>}
        <thead>
          <tr>
            {columns.map(([name, , kind], column) => (
              <th key={column} scope="col" class={kind}>
                {shown(name)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {items.map((item, at) => (
            <tr key={at} class={isChosen?.(item) ? "chosen" : undefined}>
              {columns.map(([, cell, kind], column) =>
                column === 0 ? (
                  <th key={column} scope="row">
                    {shown(cell(item, at))}
                  </th>
                ) : (
                  <td key={column} class={kind} data-column={names[column]}>
                    {shown(cell(item, at))}
                  </td>
                ),
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

/** Return columns of texts; those of numbers alone, and of none, stand at the right. */
export function wordedColumns<Item>(
  names: readonly string[],
  items: readonly Item[],
  textOf: (item: Item, name: string, column: number) => string | undefined,
): Column<Item>[] {
  return names.map((name, column) => {
    const cell = (item: Item) => textOf(item, name, column);
    const areNumbers = items.every((item) => /^([$\d.,]*|none)$/.test(cell(item) ?? ""));
    return areNumbers ? [name, cell, "number"] : [name, cell];
  });
}

function shown(value: ComponentChildren): ComponentChildren {
  return typeof value === "string" ? <Inline text={value} length={400} /> : value;
}
