/** What is loaded when it is asked for: cells, texts, prompts, provenance, transcripts, other runs. */

import { createContext } from "preact";
import { useContext, useEffect, useState } from "preact/hooks";
import type { Embedded } from "./embedded";
import type { Excerpt } from "./generated/events";

export type Answer<Value> =
  | { readonly kind: "none" }
  | { readonly kind: "loading" }
  | { readonly kind: "ready"; readonly value: Value }
  | { readonly kind: "failed"; readonly message: string };

const NONE = { kind: "none" } as const;
const LOADING = { kind: "loading" } as const;
const KEPT = 200;

/** Asks for answers, and keeps the last ones. */
export class Answers {
  private readonly known = new Map<string, Promise<Answer<unknown>>>();

  constructor(private readonly data: Embedded | null) {}

  get(path: string, version: number): Promise<Answer<unknown>> {
    const key = `${version} ${path}`;
    let answer = this.known.get(key);
    if (answer === undefined) {
      answer = this.data === null ? fetched(path) : Promise.resolve(inside(this.data, path));
      this.known.set(key, answer);
      if (this.known.size > KEPT) this.known.delete(this.known.keys().next().value as string);
    }
    return answer.then((found) => {
      if (found.kind === "failed") this.known.delete(key); // asked again next time
      return found;
    });
  }

  /** Return a text that the server sends in parts, each with the number of characters after it. */
  async whole(path: string): Promise<Answer<Excerpt>> {
    let text = "";
    for (;;) {
      const part = (await this.get(`${path}&from=${text.length}`, 0)) as Answer<Excerpt>;
      if (part.kind !== "ready") return part;
      text += part.value.text;
      if (part.value.omitted === 0 || part.value.text === "") return { kind: "ready", value: { ...part.value, text } };
    }
  }

  forget(): void {
    this.known.clear();
  }
}

function inside(data: Embedded, path: string): Answer<unknown> {
  const held = path.replace(/&from=0$/, "");
  if (Object.hasOwn(data.answers, held)) return { kind: "ready", value: data.answers[held] };
  return { kind: "failed", message: `This file does not hold it. \`${data.command}\` shows it from the run's store.` };
}

async function fetched(path: string): Promise<Answer<unknown>> {
  try {
    const answer = await fetch(path);
    const body: unknown = await answer.json();
    if (answer.ok) return { kind: "ready", value: body };
    const { error, detail } = (body ?? {}) as { error?: unknown; detail?: unknown };
    const message = error ?? detail; // of the server of a run, or of the service
    return {
      kind: "failed",
      message: typeof message === "string" ? message : `The server answered with ${answer.status}.`,
    };
  } catch {
    return { kind: "failed", message: "The server of this page does not answer." };
  }
}

export const AnswersContext = createContext(new Answers(null));

/** Return the path of a whole text; a component may be named by half of a surrogate pair, which no address can hold. */
export function wholeText(api: string, candidate: number, component: string): string {
  return `${api}/text?candidate=${candidate}&component=${encodeURIComponent(component.toWellFormed())}`;
}

/** Return a whole text, all of its parts loaded; `null` asks for nothing. */
export function useWhole(path: string | null): Answer<Excerpt> {
  return useFound(path, `whole ${path}`, (answers, asked) => answers.whole(asked));
}

/** Return the answer to a path; `null` asks for nothing. `version`: another one asks again. */
export function useAnswer<Value>(path: string | null, version = 0): Answer<Value> {
  return useFound(path, `${version} ${path}`, (answers, asked) => answers.get(asked, version));
}

function useFound<Value>(
  path: string | null,
  key: string,
  get: (answers: Answers, path: string) => Promise<Answer<unknown>>,
): Answer<Value> {
  const answers = useContext(AnswersContext);
  const [last, setLast] = useState<{ readonly key: string; readonly answer: Answer<Value> } | null>(null);
  useEffect(() => {
    let current = true;
    if (path !== null) {
      get(answers, path).then((found) => {
        if (current) setLast({ key, answer: found as Answer<Value> });
      });
    }
    return () => {
      current = false;
    };
  }, [answers, key]);
  if (path === null) return NONE;
  return last?.key === key ? last.answer : LOADING;
}
