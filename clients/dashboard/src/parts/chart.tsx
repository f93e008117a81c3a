/** A plot by uPlot that follows the width of its place. */

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import type { Theme } from "./theme";

/** Return how an axis is drawn. */
export function axisOf(theme: Theme): uPlot.Axis {
  const line = { stroke: theme.rule, width: 1 };
  const font = "12px system-ui, sans-serif";
  return { stroke: theme.quiet, grid: line, ticks: line, font, labelFont: font, labelSize: 20, labelGap: 0 };
}

/** Return how values are drawn that stay until the next one. */
export function steps(stroke: string, dash: number[] = []): uPlot.Series {
  const paths = uPlot.paths.stepped?.({ align: 1 }) as uPlot.Series.PathBuilder;
  return { stroke, dash, width: 2, spanGaps: true, paths, points: { show: false } };
}

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
