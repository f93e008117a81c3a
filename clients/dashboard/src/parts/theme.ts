/** The colours of the stylesheet for what is drawn on canvases, and the change between light and dark. */

import { useEffect, useState } from "preact/hooks";

export type Rgb = readonly [number, number, number];

export type Theme = ReturnType<typeof readTheme>;

function readTheme() {
  const probe = document.body.appendChild(document.createElement("i"));
  const colour = (name: string) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };
  const rgb = (name: string) => (colour(name).match(/\d+/g) ?? []).map(Number) as unknown as Rgb;
  const theme = {
    ink: colour("ink"),
    quiet: colour("quiet"),
    rule: colour("rule"),
    ruleStrong: colour("rule-strong"),
    panel: colour("panel"),
    accent: colour("accent"),
    good: colour("good"),
    bad: colour("bad"),
    low: rgb("low"),
    mid: rgb("mid"),
    high: rgb("high"),
    failed: rgb("failed"),
  };
  probe.remove();
  return theme;
}

export function useTheme(): Theme {
  const [theme, setTheme] = useState(readTheme);
  useEffect(() => {
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const changed = () => setTheme(readTheme());
    dark.addEventListener("change", changed);
    return () => dark.removeEventListener("change", changed);
  }, []);
  return theme;
}

/** Return the colour of a share from 0 (lowest score) to 1 (highest). */
export function ramp(theme: Theme, share: number): Rgb {
  const [from, to, part] = share < 0.5 ? [theme.low, theme.mid, share * 2] : [theme.mid, theme.high, share * 2 - 1];
  return [0, 1, 2].map((at) =>
    Math.round((from[at] as number) * (1 - part) + (to[at] as number) * part),
  ) as unknown as Rgb;
}
