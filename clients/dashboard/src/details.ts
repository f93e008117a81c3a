/** What the server answers about cells, texts, proposals, provenance, transcripts and runs. */

import type { SentText } from "./generated/events";

/** A step of an example's run. Times in seconds. */
export interface Step {
  readonly name: string;
  readonly component: string | null;
  readonly input: SentText | null;
  readonly output: SentText | null;
  readonly error: SentText | null;
  readonly seconds: number | null;
  readonly input_tokens: number | null;
  readonly output_tokens: number | null;
  readonly steps: readonly Step[];
}

export interface RowResult {
  readonly status: string;
  readonly score: number | null;
  readonly output: SentText | null;
  readonly feedback: SentText | null;
  readonly component_feedback: SentText | null;
  readonly error: SentText | null;
  readonly log: SentText | null;
}

export interface CellAnswer {
  readonly number: number | null;
  readonly seconds: number | null;
  readonly input_tokens: number | null;
  readonly output_tokens: number | null;
  readonly cost_usd: number | null;
  readonly input: SentText | null;
  readonly result: RowResult | null;
  readonly steps: readonly Step[];
  readonly no_steps: string | null;
}

export interface PromptAnswer {
  readonly component: string | null;
  readonly model: string | null;
  readonly prompt: SentText | null;
  readonly answer: SentText | null;
}

export interface ComparedRow {
  readonly row: string;
  readonly input: SentText | null;
  readonly before: RowResult | null;
  readonly after: RowResult | null;
}

export interface ProposalAnswer {
  readonly rows: readonly ComparedRow[];
  readonly prompts: readonly PromptAnswer[];
  readonly texts: Readonly<Record<string, { readonly before: SentText; readonly after: SentText }>>;
}

/** A part of a text and where it is from; `candidate` 0 is the seed. */
export interface ProvenanceSpan {
  readonly text: string;
  readonly candidate: number;
  readonly proposal: number | null;
}

/** What brought a span: the candidate's proposal, the rows it was made from, and what it changed. */
export interface Origin {
  readonly candidate: number;
  readonly proposal: number | null;
  readonly rows: readonly string[];
  readonly worth: string | null;
}

export interface ProvenanceAnswer {
  readonly components: Readonly<Record<string, readonly ProvenanceSpan[]>>;
  readonly origins: readonly Origin[];
}

export interface TranscriptAnswer {
  readonly entries: readonly { readonly role: string; readonly text: SentText }[];
  readonly diff: SentText | null;
}

export interface RunSummary {
  readonly run_id: string;
  readonly name: string | null;
  readonly status: string;
  readonly program: string | null;
  readonly created: string;
  readonly seed_score: number | null;
  readonly best_score: number | null;
  readonly candidates: number;
  readonly metric_calls: number | null;
  readonly cost_usd: number | null;
  /** Metric calls and the best score from there on. */
  readonly curve: readonly (readonly [number, number])[];
  readonly settings: Readonly<Record<string, unknown>>;
  readonly best_texts: Readonly<Record<string, SentText>>;
}

export interface RunsAnswer {
  readonly runs: readonly RunSummary[];
}

/** What may be asked of a running run; see gepa_client/journal/steer_entries.py. */
export type SteerAction =
  | { readonly kind: "pause" | "cancel" | "unpin" | "clear_hints" }
  | { readonly kind: "pin" | "drop"; readonly candidate: number }
  | { readonly kind: "propose"; readonly texts: Readonly<Record<string, string>>; readonly parent: number | null }
  | { readonly kind: "hint"; readonly text: string; readonly proposals?: number }
  | {
      readonly kind: "budget";
      readonly max_metric_calls?: number;
      readonly max_cost_usd?: number;
      readonly max_seconds?: number;
    };
