/** The buttons that zoom a picture. */

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
