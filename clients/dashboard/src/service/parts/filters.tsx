/** Parts of a view, each with its address. */

import { type ServiceView, viewAddress } from "../place";

interface Props {
  readonly label: string;
  readonly view: ServiceView;
  readonly names: readonly string[];
  readonly current: string;
}

export function Filters({ label, view, names, current }: Props) {
  return (
    <nav class="row filters" aria-label={label}>
      {names.map((name) => (
        <a key={name} href={viewAddress(view, { show: name })} aria-current={name === current ? "true" : undefined}>
          {name}
        </a>
      ))}
    </nav>
  );
}
