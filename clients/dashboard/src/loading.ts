/** What is read from the server: once, or again every few seconds; long texts in parts, lists in pages. */

import { useCallback, useEffect, useState } from "preact/hooks";
import type { Excerpt } from "./generated/events";
import type { Problem } from "./parts/problem";
import { type Result, request } from "./request";

/** `problem`: of the last attempt; `value` is then the one before it. */
export interface Loaded<Value> {
  readonly isAsked: boolean;
  readonly value: Value | null;
  readonly problem: Problem | null;
  readonly reload: () => void;
}

/** A page of a list. `next`: what the next one follows. */
interface Page<Item> {
  readonly items: readonly Item[];
  readonly next: string | null;
}

interface Found<Value> {
  readonly path: string | null;
  readonly value: Value | null;
  readonly problem: Problem | null;
}

interface How<Value> {
  /** Again after so long, while the page is visible; 0 for once. */
  readonly everyMs?: number;
  /** Another one reads again. */
  readonly version?: number;
  readonly read?: (path: string) => Promise<Result<Value>>;
}

/** Read a path; `null` reads nothing. */
export function useLoaded<Value>(path: string | null, how: How<Value> = {}): Loaded<Value> {
  const { everyMs = 0, version = 0, read: get = (asked) => request<Value>("GET", asked) } = how;
  const [found, setFound] = useState<Found<Value>>({ path: null, value: null, problem: null });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    if (path === null) return;
    let current = true;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const read = async () => {
      const answer = await get(path);
      if (!current) return;
      setFound((before) => ({
        path,
        value: answer.ok ? answer.value : before.path === path ? before.value : null,
        problem: answer.ok ? null : answer.problem,
      }));
      readLater();
    };
    const readLater = () => {
      if (everyMs > 0) timer = setTimeout(() => (document.hidden ? readLater() : void read()), everyMs);
    };
    void read();
    return () => {
      current = false;
      clearTimeout(timer);
    };
  }, [path, everyMs, version, turn]);
  const reload = useCallback(() => setTurn((before) => before + 1), []);
  const known = found.path === path;
  return { isAsked: path !== null, value: known ? found.value : null, problem: known ? found.problem : null, reload };
}

/** Read a text that the server sends in parts, each with the number of characters after it; `null` reads nothing. */
export function useWhole(path: string | null): Loaded<Excerpt> {
  return useLoaded(path, { read: whole });
}

async function whole(path: string): Promise<Result<Excerpt>> {
  let text = "";
  for (;;) {
    const part = await request<Excerpt>("GET", `${path}&from=${[...text].length}`);
    if (!part.ok) return part;
    text += part.value.text;
    if (part.value.omitted === 0 || part.value.text === "") return { ok: true, value: { ...part.value, text } };
  }
}

/** Return the path of a whole text; a component may be named by half of a surrogate pair, which no address can hold. */
export function wholeText(api: string, candidate: number, component: string): string {
  return `${api}/text?candidate=${candidate}&component=${encodeURIComponent(component.toWellFormed())}`;
}

export interface Listed<Item> extends Loaded<readonly Item[]> {
  /** Loads the next page; null if this is all. */
  readonly more: (() => void) | null;
}

/** Read a list, which is read again as long as its first page alone is shown. */
export function useList<Item>(path: string | null, everyMs = 0): Listed<Item> {
  const [rest, setRest] = useState<{ path: string | null; pages: readonly Page<Item>[] }>({ path: null, pages: [] });
  const pages = rest.path === path ? rest.pages : [];
  const first = useLoaded<Page<Item>>(path, { everyMs: pages.length > 0 ? 0 : everyMs });
  const [problem, setProblem] = useState<Problem | null>(null);
  const next = (pages.at(-1) ?? first.value)?.next ?? null;
  const load = async () => {
    const answer = await request<Page<Item>>("GET", `${path}${path?.includes("?") ? "&" : "?"}after=${next}`);
    setProblem(answer.ok ? null : answer.problem);
    if (answer.ok) setRest({ path, pages: [...pages, answer.value] });
  };
  return {
    isAsked: first.isAsked,
    value: first.value === null ? null : [first.value, ...pages].flatMap(({ items }) => items),
    problem: first.problem ?? problem,
    more: next === null ? null : () => void load(),
    reload: () => {
      setRest({ path: null, pages: [] });
      first.reload();
    },
  };
}
