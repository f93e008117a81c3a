/** The status of a job, a repository or a version as a badge. */

import { Inline } from "../../parts/text";

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
  suspended: "warn",
};

export function Badge({ text }: { text: string }) {
  return (
    <span class={`badge ${TONES[text] ?? ""}`}>
      <Inline text={text} />
    </span>
  );
}

/** What a certificate states of a version. */
export function Verdict({ version: { verdict, leaks } }: { version: { verdict: string | null; leaks: boolean } }) {
  if (verdict === null) return <span class="quiet">no certificate</span>;
  return <Badge text={leaks ? `${verdict}, weakened by leaks` : verdict} />;
}
