/** What the marks of a picture mean. */

import type { ComponentChildren } from "preact";

/** `marks`: what is drawn in a box of 16 by 12, null for a remark, and what it means. */
export function Legend({ marks }: { marks: readonly (readonly [mark: ComponentChildren, meaning: string])[] }) {
  return (
    <p class="row legend">
      {marks.map(([mark, meaning]) => (
        <span key={meaning}>
          {mark !== null && (
            <svg viewBox="0 0 16 12" aria-hidden="true">
              {mark}
            </svg>
          )}
          {meaning}
        </span>
      ))}
    </p>
  );
}
