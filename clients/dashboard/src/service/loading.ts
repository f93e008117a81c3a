/** What is read from the service: once, or again every few seconds; lists in pages. */

import { useCallback, useEffect, useState } from "preact/hooks";
import type { Problem } from "../parts/problem";
import { newKey, type Result, request } from "./request";
import type { Page } from "./schema";

/** `problem`: of the last attempt; `value` is then the one before it. */
export interface Loaded<Value> {
  readonly value: Value | null;
  readonly problem: Problem | null;
  readonly reload: () => void;
}

interface Found<Value> {
  readonly path: string | null;
  readonly value: Value | null;
  readonly problem: Problem | null;
}

/** Read a path; `null` reads nothing. `everyMs`: again after so long, while the page is visible; 0 for once. */
export function useLoaded<Value>(path: string | null, everyMs = 0): Loaded<Value> {
  const [found, setFound] = useState<Found<Value>>({ path: null, value: null, problem: null });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    if (path === null) return;
    let current = true;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const read = async () => {
      const answer = await request<Value>("GET", path);
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
  }, [path, everyMs, turn]);
  const reload = useCallback(() => setTurn((before) => before + 1), []);
  const known = found.path === path;
  return { value: known ? found.value : null, problem: known ? found.problem : null, reload };
}

export interface Listed<Item> extends Loaded<readonly Item[]> {
  /** Loads the next page; null if this is all. */
  readonly more: (() => void) | null;
}

/** Read a list, which is read again as long as its first page alone is shown. */
export function useList<Item>(path: string | null, everyMs = 0): Listed<Item> {
  const [rest, setRest] = useState<{ path: string | null; pages: readonly Page<Item>[] }>({ path: null, pages: [] });
  const pages = rest.path === path ? rest.pages : [];
  const first = useLoaded<Page<Item>>(path, pages.length > 0 ? 0 : everyMs);
  const [problem, setProblem] = useState<Problem | null>(null);
  const next = (pages.at(-1) ?? first.value)?.next ?? null;
  const load = async () => {
    const answer = await request<Page<Item>>("GET", `${path}${path?.includes("?") ? "&" : "?"}after=${next}`);
    setProblem(answer.ok ? null : answer.problem);
    if (answer.ok) setRest({ path, pages: [...pages, answer.value] });
  };
  return {
    value: first.value === null ? null : [first.value, ...pages].flatMap(({ items }) => items),
    problem: first.problem ?? problem,
    more: next === null ? null : () => void load(),
    reload: () => {
      setRest({ path: null, pages: [] });
      first.reload();
    },
  };
}

export interface Action {
  readonly busy: boolean;
  readonly problem: Problem | null;
  /** Send what changes something. Returns its answer; null if it was refused, and `problem` has the reason. */
  readonly send: <Value>(
    method: "POST" | "PATCH" | "PUT" | "DELETE",
    path: string,
    body?: unknown,
  ) => Promise<Value | null>;
  /** Show a reason that was found before anything was sent. */
  readonly refuse: (problem: Problem | null) => void;
}

/** One write at a time. A write that is repeated after a lost answer is carried out once. */
export function useAction(): Action {
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [key, setKey] = useState(newKey);
  const send = async <Value>(method: "POST" | "PATCH" | "PUT" | "DELETE", path: string, body?: unknown) => {
    setBusy(true);
    const answer: Result<Value> = await request<Value>(method, path, body, key);
    setBusy(false);
    setProblem(answer.ok ? null : answer.problem);
    if (answer.ok || answer.problem.status === 422) setKey(newKey());
    return answer.ok ? answer.value : null;
  };
  return { busy, problem, send, refuse: setProblem };
}
