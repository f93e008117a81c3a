/** The places of candidates in a drawn tree: depth across, leaves one below the other. */

export interface Node {
  readonly index: number;
  readonly parents: readonly number[];
}

export interface Placed {
  readonly index: number;
  /** Generations below the seed. */
  readonly depth: number;
  /** In units of one leaf. */
  readonly line: number;
}

export interface Layout {
  readonly nodes: ReadonlyMap<number, Placed>;
  readonly children: ReadonlyMap<number, readonly number[]>;
  readonly depth: number;
  readonly lines: number;
}

/**
 * Place each candidate below its first parent; parents come before their children in `nodes`. An unknown parent, which
 * may arrive later, counts as none.
 */
export function layout(nodes: readonly Node[]): Layout {
  const children = new Map<number, number[]>(nodes.map(({ index }) => [index, []]));
  const roots: number[] = [];
  for (const { index, parents } of nodes) {
    const siblings = parents[0] === undefined || parents[0] >= index ? undefined : children.get(parents[0]);
    (siblings ?? roots).push(index);
  }
  const placed = new Map<number, Placed>();
  let lines = 0;
  let depth = 0;
  // An explicit stack: chains may be as long as the run. A node is placed after its children, between them.
  const stack = roots.toReversed().map((index) => ({ index, depth: 0, opened: false }));
  while (stack.length > 0) {
    const top = stack[stack.length - 1] as { index: number; depth: number; opened: boolean };
    const below = children.get(top.index) ?? [];
    if (!top.opened && below.length > 0) {
      top.opened = true;
      for (const index of below.toReversed()) stack.push({ index, depth: top.depth + 1, opened: false });
      continue;
    }
    stack.pop();
    depth = Math.max(depth, top.depth);
    const [first, last] = [placed.get(below[0] ?? -1)?.line, placed.get(below.at(-1) ?? -1)?.line];
    const line = first === undefined || last === undefined ? lines++ : (first + last) / 2;
    placed.set(top.index, { index: top.index, depth: top.depth, line });
  }
  return { nodes: placed, children, depth: depth + 1, lines };
}
