/** The views of a page, each with its address. */

import { useEffect, useRef } from "preact/hooks";

interface Props {
  readonly label: string;
  /** Names by address. */
  readonly views: readonly (readonly [address: string, name: string])[];
  readonly current: string;
  readonly class?: string;
}

export function Tabs({ label, views, current, class: kind = "tabs" }: Props) {
  const shown = useRef<HTMLElement>(null);
  useEffect(() => {
    shown.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [current]);
  return (
    <nav class={kind} aria-label={label} ref={shown}>
      {views.map(([address, name]) => (
        <a key={address} href={address} aria-current={address === current ? "page" : undefined}>
          {name}
        </a>
      ))}
    </nav>
  );
}
