/** The address of what is shown: `#/VIEW?name=value`, so that every view, candidate and cell has a link. */

import { useEffect, useState } from "preact/hooks";

export const VIEWS = ["now", "result", "progress", "tree", "rows", "text", "reflection", "runs"] as const;
export type ViewName = (typeof VIEWS)[number];

export interface Route {
  readonly view: ViewName;
  readonly params: URLSearchParams;
}

export function parseRoute(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const view = VIEWS.find((name) => name === path) ?? "now";
  return { view, params: new URLSearchParams(query) };
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
  const route = parseRoute(location.hash);
  const merged = { ...Object.fromEntries(route.params), ...params };
  history.replaceState(null, "", href(route.view, merged));
  dispatchEvent(new HashChangeEvent("hashchange"));
}

export function numberOf(params: URLSearchParams, name: string): number | null {
  const text = params.get(name);
  return text !== null && /^\d+$/.test(text) ? Number(text) : null;
}

export function useRoute(): Route {
  const [route, setRoute] = useState(() => parseRoute(location.hash));
  useEffect(() => {
    const changed = () => setRoute(parseRoute(location.hash));
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}
