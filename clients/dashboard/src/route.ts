/** The address of what is shown: `#/VIEW?name=value`, so that every view, candidate and cell has a link. */

import { useEffect, useMemo, useState } from "preact/hooks";

export const NAMES = {
  now: "Now",
  result: "Result",
  progress: "Progress",
  tree: "Tree",
  rows: "Rows",
  text: "Text",
  reflection: "Reflection",
  runs: "Runs",
} as const;
export type ViewName = keyof typeof NAMES;
export const VIEWS = Object.keys(NAMES) as readonly ViewName[];

/** What the part of an address behind its `#` asks for. */
export interface Place {
  /** What is between `#/` and `?`. */
  readonly name: string;
  readonly params: URLSearchParams;
}

function placeOf(hash: string): Place {
  const [name = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  return { name, params: new URLSearchParams(query) };
}

export function routeOf({ name, params }: Place) {
  return { view: VIEWS.find((each) => each === name) ?? "now", params };
}

export function href(view: ViewName, params: Record<string, string | number | null> = {}): string {
  const given = Object.entries(params).filter(([, value]) => value !== null);
  const query = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return `#/${view}${query ? `?${query}` : ""}`;
}

export function open(view: ViewName, params: Record<string, string | number | null> = {}): void {
  location.hash = href(view, params);
}

/** Change parameters of the view shown, without a new entry in the browser's history. */
export function refine(params: Record<string, string | number | null>): void {
  const route = routeOf(placeOf(location.hash));
  const merged = { ...Object.fromEntries(route.params), ...params };
  history.replaceState(null, "", href(route.view, merged));
  dispatchEvent(new HashChangeEvent("hashchange"));
}

export function numberOf(params: URLSearchParams, name: string): number | null {
  const text = params.get(name);
  return text !== null && /^\d+$/.test(text) ? Number(text) : null;
}

export function usePlace(): Place {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    const changed = () => setHash(location.hash);
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return useMemo(() => placeOf(hash), [hash]);
}

export function useRoute() {
  return routeOf(usePlace());
}
