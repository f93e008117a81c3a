/** The events of a job, from its stream of server-sent events. */

import type { components } from "./generated/schema.js";

/** An event of the job or of its run; `reset` precedes those of another server, which come from the beginning. */
export type JobEvent = components["schemas"]["EventPage"]["events"][number] | { event: "reset" };

export interface FollowOptions {
  signal?: AbortSignal;
  /** Milliseconds before a lost connection is made again. */
  retryMs?: number;
}

/** The service refused a request. `problem`: as RFC 9457 has it. */
export class ServiceProblem extends Error {
  constructor(
    readonly status: number,
    readonly problem: { type?: string; detail?: string; field?: string },
  ) {
    super(`${status}: ${problem.detail ?? "refused"}`);
    this.name = "ServiceProblem";
  }
}

const SILENT_MS = 60_000;
const MOST_RETRIES = 30;
const TEMPORARY = new Set([429, 502, 503, 504]);

interface Message {
  event: string;
  id: string;
  data: string;
}

export async function* follow(
  url: string,
  headers: Record<string, string>,
  { signal, retryMs = 1000 }: FollowOptions,
): AsyncGenerator<JobEvent> {
  let last: string | undefined;
  for (let retries = 0; ; retries += 1) {
    try {
      for await (const message of messages(
        url,
        last === undefined ? headers : { ...headers, "Last-Event-ID": last },
        signal,
      )) {
        last = message.id || last;
        retries = 0;
        if (message.event === "end") return;
        if (message.event === "reset") yield { event: "reset" };
        else if (message.event === "") yield JSON.parse(message.data) as JobEvent;
      }
    } catch (error) {
      signal?.throwIfAborted();
      if (error instanceof ServiceProblem && !TEMPORARY.has(error.status)) throw error;
      if (retries >= MOST_RETRIES) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, retryMs));
  }
}

/** Yield whole messages of one connection. */
async function* messages(url: string, headers: Record<string, string>, signal?: AbortSignal): AsyncGenerator<Message> {
  const silent = new AbortController();
  let timer = setTimeout(() => silent.abort(), SILENT_MS);
  try {
    const answer = await fetch(url, { headers, signal: AbortSignal.any([silent.signal, ...(signal ? [signal] : [])]) });
    if (!answer.ok) throw new ServiceProblem(answer.status, await answer.json().catch(() => ({})));
    if (answer.body === null) return;
    let held = "";
    for await (const text of answer.body.pipeThrough(new TextDecoderStream())) {
      clearTimeout(timer);
      timer = setTimeout(() => silent.abort(), SILENT_MS);
      const parts = (held + text).split("\n\n");
      held = parts.pop() ?? "";
      for (const part of parts) {
        const message = parsed(part);
        if (message.data !== "") yield message;
      }
    }
  } finally {
    clearTimeout(timer);
  }
}

function parsed(part: string): Message {
  const message: Message = { event: "", id: "", data: "" };
  for (const line of part.split("\n")) {
    const at = line.indexOf(": ");
    const name = line.slice(0, at);
    if (name === "event" || name === "id" || name === "data") message[name] = line.slice(at + 2);
  }
  return message;
}
