/** Requests to the service that serves this page. The browser adds the cookie of the session. */

import type { Problem } from "../parts/problem";

export type Result<Value> =
  | { readonly ok: true; readonly value: Value }
  | { readonly ok: false; readonly problem: Problem };

/** The event of the window after an answer that the session is over. */
export const SIGNED_OUT = "signed-out";

const LOST: Problem = {
  status: 0,
  title: "No answer",
  detail: "the service does not answer. Check the connection, then try again",
  errors: [],
};

export async function request<Value>(
  method: "GET" | "POST" | "PATCH" | "PUT" | "DELETE",
  path: string,
  body?: unknown,
  key?: string,
): Promise<Result<Value>> {
  try {
    const answer = await fetch(path, {
      method,
      headers: {
        ...(body === undefined ? {} : { "content-type": "application/json" }),
        ...(key === undefined ? {} : { "idempotency-key": key }),
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

/** Return a key by which a write that is sent again is carried out once. */
export function newKey(): string {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

function problemOf(status: number, body: unknown): Problem {
  const { title, detail, field, errors } = (body ?? {}) as Record<string, unknown>;
  const text = typeof detail === "string" ? detail : `the service answered with ${status}`;
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
