/** Candidates as a table: with their scores, where they are from, and what they took. */

import { candidateName, count, money, score, time } from "../parts/format";
import { Table } from "../parts/table";
import { Inline } from "../parts/text";
import { href } from "../route";
import type { Candidate } from "../state/reduce";
import type { View } from "../state/view";

/** Characters of a text that are shown. */
const BEGINNING = 60;

export function Candidates({ view, candidates }: { view: View; candidates: readonly Candidate[] }) {
  const marks = ({ index, parents }: Candidate) =>
    [index === view.best && "best", view.front.has(index) && "front", parents.length > 1 && "merge"]
      .filter(Boolean)
      .join(", ");
  return (
    <section class="panel">
      <Table
        label="Candidates"
        tall
        items={candidates}
        columns={[
          [
            "candidate",
            ({ index, parents }) => (
              <a href={href("text", { candidate: index, with: parents[0] ?? null })}>{candidateName(index)}</a>
            ),
          ],
          ["score", (each) => score(each.score), "number"],
          ["parents", ({ parents }) => parents.join(" and ") || "none"],
          ["marks", marks],
          ["iteration", ({ iteration }) => iteration, "number"],
          ["metric calls", (each) => count(each.metric_calls), "number"],
          ["cost", (each) => money(each.cost_usd), "number"],
          ["found", (each) => time(each.found)],
          [
            "text",
            ({ texts }) => (
              <Inline as="span" class="quiet" text={Object.values(texts)[0]?.text ?? ""} length={BEGINNING} />
            ),
          ],
        ]}
      />
    </section>
  );
}
