/** A region that scrolls by itself and can be scrolled by keyboard. */

import type { ComponentChildren } from "preact";

export function Scrolled({
  label,
  tall = false,
  children,
}: {
  label: string;
  tall?: boolean;
  children: ComponentChildren;
}) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls takes the focus
    <section class={tall ? "scroll tall" : "scroll"} aria-label={label} tabIndex={0}>
      {children}
    </section>
  );
}
