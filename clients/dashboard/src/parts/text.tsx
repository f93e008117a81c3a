/** How text of programs, models and rows is shown: as text nodes, isolated from the direction of their surroundings. */

import type { ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";
import type { Excerpt } from "../generated/events";
import type { Piece } from "../text/compare";
import { diffLines } from "../text/diff-lines";
import { line, visible } from "../text/visible";
import { count } from "./format";

/** Characters beyond which a block has a height of its own and scrolls. */
const LONG = 1_500;

/** Characters of a text that are in the document at once; the rest is shown when asked for. */
const SHOWN = 200_000;

interface InlineProps {
  readonly text: string;
  readonly length?: number;
  /** The element that it is alone in; none if it stands in a sentence. */
  readonly as?: "code" | "dd" | "h1" | "h2" | "h3" | "p" | "q" | "span" | "strong";
  readonly class?: string;
}

/** One line of at most `length` characters. */
export function Inline({ text, length = 120, as: Tag, class: name }: InlineProps) {
  const shown = <bdi class="inline">{line(text, length)}</bdi>;
  return Tag === undefined ? shown : <Tag class={name}>{shown}</Tag>;
}

/** A text with its lines. `omitted`: characters that are missing at its end. */
export function Block({ text, omitted = 0, label }: { text: string; omitted?: number; label: string }) {
  const [whole, setWhole] = useState(false);
  const shown = whole ? text : text.slice(0, SHOWN);
  return (
    <>
      <Frame label={label} size={shown.length}>
        {visible(shown) || <span class="quiet">(empty)</span>}
        <More omitted={omitted} />
      </Frame>
      {shown.length < text.length && (
        <button type="button" onClick={() => setWhole(true)}>
          Show the other {count(text.length - shown.length)} characters
        </button>
      )}
    </>
  );
}

function More({ omitted }: { omitted: number }) {
  return omitted > 0 ? <span class="quiet">{`\n[${count(omitted)} more characters]`}</span> : null;
}

/** Two texts as one: removed words struck through, new words underlined. */
export function Compared({
  pieces,
  label,
  omitted = 0,
  class: name = "",
}: {
  pieces: readonly Piece[];
  label: string;
  omitted?: number;
  class?: string;
}) {
  const size = pieces.reduce((sum, piece) => sum + piece.text.length, 0);
  const room = size > SHOWN ? { same: 2_000, add: SHOWN / 4, del: SHOWN / 4 } : null;
  return (
    <Frame label={label} size={size} class={name}>
      {size === 0 && <span class="quiet">(empty)</span>}
      {pieces.map((piece, at) => {
        const text = visible(room === null ? piece.text : abridged(piece.text, room[piece.kind]));
        if (piece.kind === "same") return text;
        return piece.kind === "add" ? <ins key={at}>{text}</ins> : <del key={at}>{text}</del>;
      })}
      <More omitted={omitted} />
    </Frame>
  );
}

/** A unified diff: lines with their signs, in colours. */
export function Diff({ text, omitted }: Excerpt) {
  const pieces = useMemo(() => diffLines(text), [text]);
  return <Compared pieces={pieces} label="Difference" omitted={omitted} class="diff" />;
}

/** The beginning and the end of a long text. */
function abridged(text: string, room: number): string {
  if (text.length <= 2 * room) return text;
  return `${text.slice(0, room)}\n[${count(text.length - 2 * room)} characters]\n${text.slice(-room)}`;
}

interface FrameProps {
  readonly label: string;
  /** Characters of the text. */
  readonly size: number;
  readonly children: ComponentChildren;
  readonly class?: string;
}

/** The box of a text; a long one scrolls, and takes the focus so that keys can scroll it. */
export function Frame({ label, size, children, class: name = "" }: FrameProps) {
  const text = (
    <pre class={`block ${name}`} dir="auto">
      {children}
    </pre>
  );
  if (size <= LONG) return text;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls takes the focus
    <section class="long" aria-label={label} tabIndex={0}>
      {text}
    </section>
  );
}
