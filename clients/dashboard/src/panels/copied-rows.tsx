/** Texts of rows in candidates: held-out rows that leak, and training rows that were copied. */

import { candidateName, counted } from "../parts/format";
import { rowName, rowNames } from "../parts/row-name";
import { Inline } from "../parts/text";
import { href } from "../route";
import type { View } from "../state/view";

export function CopiedRows({ view }: { view: View }) {
  const { certificate, copied_examples: copied } = view.latest;
  const leaks = certificate?.certificate?.leaks;
  return (
    <>
      {leaks !== undefined && leaks.rows > 0 && (
        <section class="panel">
          <h2>Leaks: {counted(leaks.rows, "row")} in the best candidate</h2>
          <ul>
            {leaks.listed.map((leak, at) => (
              <li key={at}>
                <Inline text={rowName(`${leak.split} ${leak.row}`)} />: {counted(leak.words, "word")} in{" "}
                <Inline text={leak.component} />, line {leak.line}
              </li>
            ))}
          </ul>
        </section>
      )}
      {copied !== undefined && copied.count > 0 && (
        <section class="panel">
          <h2>Copied from training rows: {counted(copied.count, "part")}</h2>
          <ul>
            {copied.copies.map((copy, at) => (
              <li key={at}>
                <a href={href("text", { candidate: copy.candidate })}>{candidateName(copy.candidate)}</a>,{" "}
                <Inline text={copy.component} />: {counted(copy.words, "word")}, as in{" "}
                {counted(copy.row_count, "training row")} (
                <Inline text={rowNames(copy.rows.map((row) => `train ${row}`))} />
                ): <Inline as="q" text={copy.text} length={200} />
              </li>
            ))}
          </ul>
        </section>
      )}
    </>
  );
}
