/** A plot by uPlot that follows the width of its place. */

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";

interface Props {
  readonly label: string;
  readonly options: Omit<uPlot.Options, "width" | "height">;
  readonly data: uPlot.AlignedData;
  readonly height?: number;
}

export function Chart({ label, options, data, height = 380 }: Props) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  useEffect(() => {
    const element = place.current;
    if (element === null) return;
    const size = () => ({ width: Math.max(200, element.clientWidth), height: Math.min(height, innerHeight * 0.6) });
    const made = new uPlot({ ...options, ...size() }, data, element);
    plot.current = made;
    const observer = new ResizeObserver(() => made.setSize(size()));
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [options, height]);
  useEffect(() => plot.current?.setData(data), [data]);
  return <div ref={place} class="chart" role="img" aria-label={label} />;
}
