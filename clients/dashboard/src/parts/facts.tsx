/** Names and their values, as a list or as figures in a line. */

import type { ComponentChildren } from "preact";
import { visible } from "../text/visible";
import { Inline } from "./text";

/** A value that is a string may be a text of a program; one that is null or false is left out with its name. */
export type Fact = readonly [name: ComponentChildren, value: ComponentChildren];

interface Props {
  readonly facts: readonly Fact[];
  readonly as?: "facts" | "figures";
  /** Characters of a value that are shown. */
  readonly length?: number;
}

export function Facts({ facts, as = "facts", length = 400 }: Props) {
  return (
    <dl class={as === "figures" ? "row figures" : "facts"}>
      {facts.map(
        ([name, value], at) =>
          value !== null &&
          value !== undefined &&
          value !== false && (
            <div key={at}>
              <dt>{name}</dt>
              <dd>{typeof value === "string" ? <Text text={value} length={length} /> : value}</dd>
            </div>
          ),
      )}
    </dl>
  );
}

function Text({ text, length }: { text: string; length: number }) {
  if (!text.includes("\n")) return <Inline text={text} length={length} />;
  return (
    <pre class="block" dir="auto">
      {visible(text)}
    </pre>
  );
}
