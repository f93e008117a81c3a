/** The buttons and keys of pictures. */

interface Props {
  readonly onZoom: (factor: number) => void;
  readonly onFit: () => void;
}

/** The factor of one step. */
export const STEP = 1.4;

export function Zoom({ onZoom, onFit }: Props) {
  return (
    <span>
      <button type="button" aria-label="Zoom out" onClick={() => onZoom(1 / STEP)}>
        {"\u2212"}
      </button>{" "}
      <button type="button" aria-label="Zoom in" onClick={() => onZoom(STEP)}>
        +
      </button>{" "}
      <button type="button" onClick={onFit}>
        Fit
      </button>
    </span>
  );
}

/** Return a listener that does what belongs to the key that was pressed, in place of what the browser does. */
export function pressed(actions: Readonly<Record<string, () => void>>): (event: KeyboardEvent) => void {
  return (event) => {
    const action = actions[event.key];
    if (action === undefined || event.altKey || event.metaKey) return;
    event.preventDefault();
    action();
  };
}
