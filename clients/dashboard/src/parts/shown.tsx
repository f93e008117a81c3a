/** What was read from the server, and the states before it is there and after it was lost. */

import type { ComponentChildren } from "preact";
import type { Listed, Loaded } from "../loading";
import { Inline } from "./text";

export function Loading() {
  return (
    <p class="empty" role="status">
      Loading.
    </p>
  );
}

interface Props<Value> {
  readonly loaded: Loaded<Value>;
  readonly children?: (value: Value) => ComponentChildren;
}

export function Shown<Value>({ loaded: { isAsked, value, problem, reload }, children }: Props<Value>) {
  return (
    <>
      {problem !== null && (
        <div class="notices" role="alert">
          <p>
            {value === null
              ? "Not available"
              : `${problem.status === 0 ? "Connection lost" : "Not loaded again"}; what is shown may be old`}
            : <Inline text={problem.detail} length={500} />
          </p>
          <button type="button" onClick={reload}>
            Try again
          </button>
        </div>
      )}
      {value !== null ? children?.(value) : problem === null && isAsked ? <Loading /> : null}
    </>
  );
}

interface ListProps<Item> {
  readonly list: Listed<Item>;
  /** What is shown if there is nothing. */
  readonly empty: ComponentChildren;
  readonly children: (items: readonly Item[]) => ComponentChildren;
}

export function List<Item>({ list, empty, children }: ListProps<Item>) {
  return (
    <Shown loaded={list}>
      {(items) => (
        <>
          {items.length === 0 ? <div class="empty">{empty}</div> : children(items)}
          {list.more !== null && (
            <p>
              <button type="button" onClick={list.more}>
                Show more
              </button>
            </p>
          )}
        </>
      )}
    </Shown>
  );
}
