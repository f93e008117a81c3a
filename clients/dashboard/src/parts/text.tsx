/** How text of programs, models and rows is shown: as text nodes, isolated from the direction of their surroundings. */

import type { Piece } from "../text/compare";
import { line, visible } from "../text/visible";

/** One line within a sentence or a cell. */
export function Inline({ text, length = 120 }: { text: string; length?: number }) {
  return <bdi class="inline">{line(text, length)}</bdi>;
}

/** A text with its lines. `omitted`: characters that are missing at its end. */
export function Block({ text, omitted = 0 }: { text: string; omitted?: number }) {
  return (
    <pre class="block" dir="auto">
      {visible(text) || <span class="quiet">(empty)</span>}
      {omitted > 0 && <span class="quiet">{`\n[${omitted.toLocaleString("en")} more characters]`}</span>}
    </pre>
  );
}

/** Two texts as one: removed words struck through, new words underlined. */
export function Compared({ pieces }: { pieces: readonly Piece[] }) {
  return (
    <pre class="block" dir="auto">
      {pieces.length === 0 && <span class="quiet">(empty)</span>}
      {pieces.map((piece, at) => {
        const text = visible(piece.text);
        if (piece.kind === "same") return text;
        return piece.kind === "add" ? <ins key={at}>{text}</ins> : <del key={at}>{text}</del>;
      })}
    </pre>
  );
}
