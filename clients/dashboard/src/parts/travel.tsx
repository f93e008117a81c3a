/** Time travel: the moment of the search at which the whole page shows the run. */

import { LIVE, type View } from "../state/view";
import { counted } from "./format";

interface Props {
  readonly end: number;
  readonly view: View;
  readonly onChange: (at: number) => void;
}

export function Travel({ end, view, onChange }: Props) {
  const live = view.at === LIVE;
  const at = live ? end : Math.min(view.at, end);
  const moment = live ? "latest" : `after ${counted(view.metricCalls, "metric call")}`;
  const go = (place: number) => onChange(Math.max(0, Math.min(end, place)));
  /** Places at which a candidate was found, to step from one to the next. */
  const step = (direction: 1 | -1) => {
    const places = [...new Set([...(view.latest.run ? [0] : []), ...knownPlaces(view), end])].sort((a, b) => a - b);
    const next = direction === 1 ? places.find((place) => place > at) : places.findLast((place) => place < at);
    if (next !== undefined) go(next);
  };
  return (
    <>
      <label for="travel">
        State of the run: <output for="travel">{moment}</output>
      </label>
      <button type="button" aria-label="Previous step" disabled={at <= 0} onClick={() => step(-1)}>
        {"\u2190"}
      </button>
      <input
        id="travel"
        type="range"
        min={0}
        max={end}
        value={at}
        aria-valuetext={moment}
        onInput={(event) => go(Number(event.currentTarget.value))}
      />
      <button type="button" aria-label="Next step" disabled={live || at >= end} onClick={() => step(1)}>
        {"\u2192"}
      </button>
      <button type="button" aria-pressed={live} onClick={() => onChange(LIVE)}>
        Latest
      </button>
    </>
  );
}

function knownPlaces(view: View): number[] {
  return [...view.candidates.map(({ at }) => at), ...view.proposals.map(({ at, decided }) => decided ?? at)];
}
