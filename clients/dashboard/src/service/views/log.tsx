/** What the attempts and processes of a job printed, as it is printed. */

import { useEffect, useState } from "preact/hooks";
import { time } from "../../parts/format";
import { type Problem, ProblemNotice } from "../../parts/problem";
import { Loading } from "../../parts/shown";
import { Inline } from "../../parts/text";
import { request } from "../../request";
import { visible } from "../../text/visible";
import { hasEnded } from "../parts/job-controls";
import type { Schema } from "../schema";

type Line = Schema<"LogLine">;

const EVERY_MS = 2_000;
/** The last lines that are in the document. */
const SHOWN = 2_000;

export function LogView({ id, status }: { id: string; status: string }) {
  const { lines, problem } = useLog(id, hasEnded(status));
  if (lines === null) {
    return problem === null ? <Loading /> : <ProblemNotice problem={problem} />;
  }
  const shown = lines.slice(-SHOWN);
  return (
    <>
      <ProblemNotice problem={problem} />
      {lines.length > shown.length && <p class="quiet">{lines.length - shown.length} earlier lines are left out.</p>}
      {lines.length === 0 ? (
        <p class="empty">Nothing was printed yet.</p>
      ) : (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls takes the focus
        <section class="block long" aria-label="Log" tabIndex={0}>
          <ol>
            {shown.map((line, at) => (
              <li key={at}>
                <span class="quiet">
                  {time(line.at)} <Inline text={line.source} length={40} />
                </span>{" "}
                <bdi>{visible(line.text)}</bdi>
              </li>
            ))}
          </ol>
        </section>
      )}
    </>
  );
}

/** Read the log page by page; the last page is read again, as it grows. */
function useLog(id: string, ended: boolean): { lines: readonly Line[] | null; problem: Problem | null } {
  const [lines, setLines] = useState<readonly Line[] | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  useEffect(() => {
    let current = true;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let whole: readonly Line[] = [];
    let after: string | null = null;
    const read = async () => {
      const query: string = after === null ? "" : `?after=${after}`;
      const answer = await request<Schema<"LogPage">>("GET", `/job/${encodeURIComponent(id)}/logs${query}`);
      if (!current) return;
      setProblem(answer.ok ? null : answer.problem);
      if (answer.ok) {
        const now = [...whole, ...answer.value.lines];
        setLines(now);
        if (answer.value.next !== null) {
          whole = now;
          after = answer.value.next;
        }
      }
      if (answer.ok && answer.value.next !== null) void read();
      else if (!ended || !answer.ok) timer = setTimeout(read, EVERY_MS);
    };
    void read();
    return () => {
      current = false;
      clearTimeout(timer);
    };
  }, [id, ended]);
  return { lines, problem };
}
