/** Requests to the server of this page, which the browser sends with the cookie of the session. */

import { type Embedded, embedded } from "./embedded";
import type { Problem } from "./parts/problem";

export type Result<Value> =
  | { readonly ok: true; readonly value: Value }
  | { readonly ok: false; readonly problem: Problem };

/** The event of the window after an answer that the session is over. */
export const SIGNED_OUT = "signed-out";

const LOST: Problem = {
  status: 0,
  title: "No answer",
  detail: "the server does not answer. Check the connection, then try again",
  errors: [],
};

/** Where the page of a run keeps the key that steering needs; pages of other ports, which get the cookie, cannot read it. */
export const KEY = "key";

export type Write = "POST" | "PATCH" | "PUT" | "DELETE";

export async function request<Value>(
  method: "GET" | Write,
  path: string,
  body?: unknown,
  key?: string,
): Promise<Result<Value>> {
  const file = embedded();
  if (file !== null) return inside(file, path);
  const own = sessionStorage.getItem(KEY);
  try {
    const answer = await fetch(path, {
      method,
      headers: {
        ...(body === undefined ? {} : { "content-type": "application/json" }),
        ...(key === undefined ? {} : { "idempotency-key": key }),
        ...(own === null ? {} : { "x-evolverpc-key": own }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    if (answer.status === 204) return { ok: true, value: undefined as Value };
    const read: unknown = await answer.json();
    if (answer.ok) return { ok: true, value: read as Value };
    if (answer.status === 401 && path !== "/session") dispatchEvent(new Event(SIGNED_OUT));
    return { ok: false, problem: problemOf(answer.status, read) };
  } catch {
    return { ok: false, problem: LOST };
  }
}

/** Return an answer that an exported file holds. */
function inside<Value>({ answers, command }: Embedded, path: string): Result<Value> {
  const held = path.replace(/&from=0$/, "");
  if (Object.hasOwn(answers, held)) return { ok: true, value: answers[held] as Value };
  const detail = `This file does not hold it. \`${command}\` shows it from the run's store.`;
  return { ok: false, problem: { ...LOST, detail } };
}

/** Return a key by which a write that is sent again is carried out once. */
export function newKey(): string {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

function problemOf(status: number, body: unknown): Problem {
  const { title, error, detail = error, field, errors } = (body ?? {}) as Record<string, unknown>; // `error`: of a run's
  const text = typeof detail === "string" ? detail : `the server answered with ${status}`;
  return {
    status,
    title: typeof title === "string" ? title : "Failed",
    detail: text,
    errors: Array.isArray(errors)
      ? (errors as Problem["errors"])
      : typeof field === "string"
        ? [{ field, message: text }]
        : [],
  };
}
