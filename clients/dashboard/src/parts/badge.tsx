/** The status of a run, a job, a repository or a version as a badge. */

import { Inline } from "./text";

const TONES: Record<string, string> = {
  running: "accent",
  completed: "good",
  connected: "good",
  improved: "good",
  active: "good",
  failed: "bad",
  unreachable: "bad",
  worse: "bad",
  paused: "warn",
  cancelled: "warn",
  suspended: "warn",
};

interface Props {
  readonly text: string;
  /** What its colour is by. */
  readonly status?: string;
  /** It is announced when it changes. */
  readonly live?: boolean;
}

export function Badge({ text, status = text, live = false }: Props) {
  return (
    <span class={`badge ${TONES[status] ?? ""}`} role={live ? "status" : undefined}>
      <Inline text={text} />
    </span>
  );
}

/** What a certificate states of a version. */
export function Verdict({ version: { verdict, leaks } }: { version: { verdict: string | null; leaks: boolean } }) {
  if (verdict === null) return <span class="quiet">no certificate</span>;
  return <Badge text={leaks ? `${verdict}, weakened by leaks` : verdict} />;
}
