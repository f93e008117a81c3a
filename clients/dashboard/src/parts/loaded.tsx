/** An answer that is loaded when it is asked for, and the states before it is there. */

import type { ComponentChildren } from "preact";
import type { Answer } from "../answers";
import { Inline } from "./text";

interface Props<Value> {
  readonly answer: Answer<Value>;
  readonly children: (value: Value) => ComponentChildren;
}

export function Loaded<Value>({ answer, children }: Props<Value>) {
  switch (answer.kind) {
    case "none":
      return null;
    case "loading":
      return (
        <p class="quiet" role="status">
          Loading.
        </p>
      );
    case "failed":
      return (
        <p class="warn" role="status">
          Not available: <Inline text={answer.message} length={400} />
        </p>
      );
    case "ready":
      return <>{children(answer.value)}</>;
  }
}
