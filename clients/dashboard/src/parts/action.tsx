/** Requests that change something: one at a time, and as a form that a button opens. */

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { newKey, type Result, request, type Write } from "../request";
import { DialogButton } from "./dialog";
import { Form, type Given } from "./form";
import type { Problem } from "./problem";

/** A request that changes something. */
export type Asked = readonly [method: Write, path: string, body?: unknown];

export interface Action {
  readonly busy: boolean;
  readonly problem: Problem | null;
  /** Send what changes something. Returns its answer; null if it was refused, and `problem` has the reason. */
  readonly send: <Value>(...asked: Asked) => Promise<Value | null>;
  /** Show a reason that was found before anything was sent. */
  readonly refuse: (problem: Problem | null) => void;
}

/** One write at a time. A write that is repeated after a lost answer is carried out once. */
export function useAction(): Action {
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [key, setKey] = useState(newKey);
  const send = async <Value,>(...[method, path, body]: Asked) => {
    setBusy(true);
    const answer: Result<Value> = await request<Value>(method, path, body, key);
    setBusy(false);
    setProblem(answer.ok ? null : answer.problem);
    if (answer.ok || answer.problem.status === 422) setKey(newKey());
    return answer.ok ? answer.value : null;
  };
  return { busy, problem, send, refuse: setProblem };
}

interface RequestProps {
  readonly title: string;
  /** Of the button; the title if it is missing. */
  readonly label?: string;
  /** As of `DialogButton`. */
  readonly about?: string;
  readonly primary?: boolean;
  readonly submit: string;
  readonly others?: Readonly<Record<string, string>>;
  readonly asked: (given: Given, pressed: string) => Asked;
  readonly onDone: () => void;
  readonly children?: ComponentChildren;
}

/** A button that opens the form of a request, which is closed once the server has taken it. */
export function RequestButton({
  title,
  label = title,
  submit,
  others = {},
  asked,
  onDone,
  children,
  ...button
}: RequestProps) {
  const { send, refuse: _, ...action } = useAction();
  return (
    <DialogButton label={label} title={title} {...button}>
      {(close) => (
        <Form
          {...action}
          submit={submit}
          others={others}
          onSubmit={async (given, pressed) => {
            if ((await send(...asked(given, pressed))) === null) return;
            close();
            onDone();
          }}
        >
          {children}
        </Form>
      )}
    </DialogButton>
  );
}
