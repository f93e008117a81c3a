/** What is known and changes, and the components that show it. */

import { useEffect, useState } from "preact/hooks";

export class Observed<Known extends object> {
  private readonly listeners = new Set<() => void>();

  constructor(public known: Known) {}

  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  protected set(changed: Partial<Known>): void {
    this.known = { ...this.known, ...changed };
    for (const listener of this.listeners) listener();
  }
}

/** Return what is known, each time that it changes. */
export function useKnown<Known extends object>(observed: Observed<Known>): Known {
  const [known, setKnown] = useState(observed.known);
  useEffect(() => {
    setKnown(observed.known);
    return observed.subscribe(() => setKnown(observed.known));
  }, [observed]);
  return known;
}
