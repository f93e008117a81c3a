/** Numbers, money and times as the page writes them. */

import type { AnswerUsage } from "../generated/answers";
import type { Proposal } from "../generated/events";

/** The outcomes of proposals. */
export const OUTCOMES: Record<Proposal["outcome"], string> = {
  pending: "pending",
  kept: "kept",
  rejected: "rejected",
  raced_out: "lost its race",
  empty: "no new text",
  refused: "change of code rejected",
  unfinished: "not decided",
};

/** Return how many proposals have each outcome; of the outcomes that some have. */
export function countsOf(proposals: readonly Proposal[]): Partial<Record<Proposal["outcome"], number>> {
  const counts: Partial<Record<Proposal["outcome"], number>> = {};
  for (const { outcome } of proposals) counts[outcome] = (counts[outcome] ?? 0) + 1;
  return counts;
}

// Making a formatter takes longer than all that it formats.
const NUMBER = new Intl.NumberFormat("en");
const DOLLARS = new Intl.NumberFormat("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
const CENTS = new Intl.NumberFormat("en", { minimumFractionDigits: 2, maximumFractionDigits: 4 });
const TIME = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });

export function score(value: number | null | undefined): string {
  if (value === null || value === undefined || Number.isNaN(value)) return "none";
  return String(Number(value.toPrecision(4)));
}

/** The scores before and after, on one line. */
export function fromTo(before: string, after: string): string {
  return `${before}\u00a0\u2192\u00a0${after}`;
}

export function signed(value: number): string {
  return `${value < 0 ? "\u2212" : "+"}${score(Math.abs(value))}`;
}

export function count(value: number | null | undefined): string {
  return value === null || value === undefined ? "unknown" : NUMBER.format(value);
}

export function counted(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}

export function money(usd: number | null | undefined): string {
  if (usd === null || usd === undefined) return "unknown";
  return `$${(usd !== 0 && usd < 0.1 ? CENTS : DOLLARS).format(usd)}`;
}

export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined) return "unknown";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 59.5) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

type Usage = Omit<AnswerUsage, "again" | "cost_usd"> & Partial<AnswerUsage>;

/** Return what a call took, as far as it is known. */
export function took({ seconds, input_tokens, output_tokens, cost_usd = null }: Usage): string {
  const known = [
    seconds !== null && duration(seconds),
    input_tokens !== null && counted(input_tokens, "input token"),
    output_tokens !== null && counted(output_tokens, "output token"),
    cost_usd !== null && money(cost_usd),
  ];
  return known.filter(Boolean).join(", ");
}

/** A time in the reader's time zone. */
export function time(iso: string | null | undefined): string {
  if (!iso) return "unknown";
  const date = new Date(iso);
  return Number.isNaN(date.getTime()) ? iso : TIME.format(date);
}

/** With a capital letter at its beginning. */
export function sentence(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

export function candidateName(index: number): string {
  return index === 0 ? "candidate 0 (seed)" : `candidate ${index}`;
}
