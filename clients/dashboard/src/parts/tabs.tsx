/** The views of a page, each with its address. */

interface Props {
  readonly label: string;
  /** Names by address. */
  readonly views: readonly (readonly [address: string, name: string])[];
  readonly current: string;
  readonly class?: string;
}

export function Tabs({ label, views, current, class: kind = "tabs" }: Props) {
  return (
    <nav class={kind} aria-label={label}>
      {views.map(([address, name]) => (
        <a key={address} href={address} aria-current={address === current ? "page" : undefined}>
          {name}
        </a>
      ))}
    </nav>
  );
}
