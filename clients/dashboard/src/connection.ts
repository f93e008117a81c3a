/** The connection to the server of the page: a session by the token of the address, then the events of one run. */

import type { PageEvent } from "./generated/events";
import { KEY, request } from "./request";

export type Status =
  | { readonly kind: "connecting" }
  | { readonly kind: "live" }
  /** The server has sent everything: there will be no more events. */
  | { readonly kind: "ended" }
  | { readonly kind: "lost"; readonly since: number }
  | { readonly kind: "refused"; readonly message: string }
  | { readonly kind: "deleted" }
  | { readonly kind: "embedded" };

export interface Listener {
  events(events: readonly PageEvent[]): void;
  /** What was known is of another server process: everything comes again. */
  reset(): void;
  status(status: Status): void;
}

/** The server's name for the newest run. */
const LAST = "last";
/** Events are passed on in batches: after `BATCH_MS`, or later if the page was busy with the one before. */
const BATCH_MS = 30;
const LONGEST_BATCH_MS = 200;
const BUSY_FACTOR = 4;
const RETRY_MS = 2_000;
const REFUSED =
  "The server refuses this page: its token is missing or old. Open the address that `evolverpc watch` prints.";

/** What the address asks for: the run to show, and why the server refuses the page if it does. */
export interface Session {
  readonly run: string;
  readonly refused: string | null;
}

/** Exchange the token in the address (`#token=...&run=...`) for a cookie and a key, and take it out of the address. */
export async function openSession(): Promise<Session> {
  const fragment = new URLSearchParams(location.hash.slice(1));
  const token = fragment.get("token");
  if (token === null) return { run: new URLSearchParams(location.search).get("run") ?? LAST, refused: null };
  const run = fragment.get("run") ?? LAST;
  showRun(run, "#/now");
  const answer = await request<{ key: string }>("POST", "/session", { token });
  if (!answer.ok) return { run, refused: REFUSED };
  sessionStorage.setItem(KEY, answer.value.key);
  return { run, refused: null };
}

/** Put the run into the address, so that a reloaded page shows it again. */
export function showRun(run: string, hash = location.hash): void {
  history.replaceState(null, "", `${location.pathname}?run=${encodeURIComponent(run)}${hash}`);
}

/** What is followed: the address of its events after the id `last`, and the one that states whether it is there. */
export interface Followed {
  readonly events: (last: string) => string;
  readonly status: string;
  /** What is stated if the server refuses the page. */
  readonly refused: string;
}

/** Return the addresses of a run. */
export function eventsOf(run: string): Followed {
  const path = `/api/runs/${encodeURIComponent(run)}`;
  return {
    events: (last) => `${path}/events${last ? `?last=${encodeURIComponent(last)}` : ""}`,
    status: path,
    refused: REFUSED,
  };
}

/** Follow events until the returned function is called, or the server ends them: there will be no more. */
export function follow(followed: Followed, listener: Listener): () => void {
  let source: EventSource | null = null;
  let queue: PageEvent[] = [];
  let flush: ReturnType<typeof setTimeout> | undefined;
  let retry: ReturnType<typeof setTimeout> | undefined;
  let lost: number | null = null;
  let last = "";
  let closed = false;
  let pause = BATCH_MS;

  const pass = () => {
    clearTimeout(flush);
    flush = undefined;
    const events = queue;
    queue = [];
    const began = performance.now();
    listener.events(events);
    setTimeout(() => {
      pause = Math.min(LONGEST_BATCH_MS, Math.max(BATCH_MS, BUSY_FACTOR * (performance.now() - began)));
    });
  };
  const live = () => {
    lost = null;
    listener.status({ kind: "live" });
  };
  const connect = () => {
    source?.close();
    source = new EventSource(followed.events(last));
    source.onopen = live;
    source.addEventListener("end", () => {
      source?.close();
      pass();
      listener.status({ kind: "ended" });
    });
    source.addEventListener("revoked", () => {
      source?.close();
      listener.status({ kind: "refused", message: followed.refused });
    });
    source.addEventListener("reset", () => {
      queue = [];
      listener.reset();
    });
    source.onmessage = ({ data, lastEventId }) => {
      last = lastEventId;
      queue.push(JSON.parse(data) as PageEvent);
      flush ??= setTimeout(pass, pause);
    };
    source.onerror = () => {
      lost ??= Date.now();
      listener.status({ kind: "lost", since: lost });
      if (source?.readyState === EventSource.CLOSED) retry = setTimeout(again, RETRY_MS);
    };
  };
  /** The browser gave up, for the server answered with an error: find out which. */
  const again = async () => {
    const answer = await request("GET", followed.status);
    if (closed) return;
    const status = answer.ok ? 200 : answer.problem.status;
    if (status === 401 || status === 403) listener.status({ kind: "refused", message: followed.refused });
    else if (status === 404) listener.status({ kind: "deleted" });
    else connect();
  };
  connect();
  return () => {
    closed = true;
    clearTimeout(flush);
    clearTimeout(retry);
    source?.close();
  };
}
