// Generated from the contract's schema by `npm run generate`; do not edit.

/**
 * What the server of the page answers.
 */
export type PageAnswer = RunList | Cell | SentText | ProposalShown | Provenance | Explained | Transcript;
export type JsonValue = unknown;

/**
 * All runs of the store, the newest first.
 */
export interface RunList {
  runs: RunListed[];
}
/**
 * A run of the store. `curve`: metric calls, and the best score from there on. `best_texts`: by component.
 *
 * `unpriced`: results without a price; `unreported`: those of them without any usage.
 */
export interface RunListed {
  run_id: string;
  name: string | null;
  status: string;
  program: string | null;
  created: string;
  completed: string | null;
  seed_score: number | null;
  best_score: number | null;
  candidates: number;
  metric_calls: number | null;
  cost_usd: number | null;
  unpriced: number;
  unreported: number;
  curve: [unknown, unknown][];
  settings: {
    [k: string]: JsonValue;
  };
  best_texts: {
    [k: string]: SentText;
  };
}
/**
 * The beginning of a text. `omitted`: characters that are left out; `text` of the server's interface has them.
 */
export interface SentText {
  text: string;
  omitted: number;
}
/**
 * A candidate on a validation row. `no_steps`: why there are none. `seconds`, tokens, cost: of the attempt.
 */
export interface Cell {
  row: string;
  input: SentText | null;
  result: RowShown | null;
  number: number | null;
  seconds: number | null;
  input_tokens: number | null;
  output_tokens: number | null;
  cost_usd: number | null;
  steps: StepShown[];
  no_steps: string | null;
}
/**
 * The result of a candidate on a row. `score`: None if the program failed.
 */
export interface RowShown {
  status: string;
  score: number | null;
  output: SentText | null;
  feedback: SentText | null;
  component_feedback: SentText | null;
  error: SentText | null;
  log: SentText | null;
}
/**
 * A step of an example's run.
 */
export interface StepShown {
  name: string;
  component: string | null;
  input: SentText | null;
  output: SentText | null;
  error: SentText | null;
  seconds: number | null;
  input_tokens: number | null;
  output_tokens: number | null;
  steps: StepShown[];
}
/**
 * What a proposal was made from, and what it changed, by component.
 *
 * `rows`: of its minibatch of `size` rows, the first ones unless all were asked for, as the `records` of its prompts.
 */
export interface ProposalShown {
  size: number;
  rows: RowCompared[];
  prompts: PromptShown[];
  texts: {
    [k: string]: TextsCompared;
  };
}
/**
 * A row of a minibatch, with the parent and with the proposal.
 */
export interface RowCompared {
  row: string;
  input: SentText | null;
  before: RowShown | null;
  after: RowShown | null;
}
/**
 * A prompt for new texts and its answer.
 *
 * `prompt`: the whole prompt, None if it cannot be made again from the journal. `hints`: those of users in it.
 * `records`: what it was made from, a part of them if they are many or long.
 */
export interface PromptShown {
  component: string | null;
  model: string | null;
  prompt: SentText | null;
  hints: string[];
  records: SentText | null;
  answer: SentText | null;
}
/**
 * A component before and after.
 */
export interface TextsCompared {
  before: SentText;
  after: SentText;
}
/**
 * Where each part of a candidate's texts is from; parts of the seed first in `origins`.
 */
export interface Provenance {
  components: {
    [k: string]: ProvenanceSpan[];
  };
  origins: Origin[];
}
/**
 * A part of a text; `candidate`: the first one that had it, 0 for the seed.
 */
export interface ProvenanceSpan {
  text: string;
  candidate: number;
  proposal: number | null;
}
/**
 * What brought spans: a candidate, its proposal, the rows of its minibatch, what it was worth in words.
 */
export interface Origin {
  candidate: number;
  proposal: number | null;
  rows: string[];
  worth: string | null;
}
/**
 * Why the best candidate is better. `overall`: against the seed, if that is not the only step.
 *
 * `steps`: the changes from the seed to the best, oldest first; `steps_omitted`: earlier ones.
 */
export interface Explained {
  best: number;
  overall: ChangeShown | null;
  steps: ChangeShown[];
  steps_omitted: number;
}
/**
 * A candidate against one of its parents, or the seed. `proposal`: where its proposal begins.
 *
 * `origin`, `moved`: in words.
 */
export interface ChangeShown {
  candidate: number;
  title: string;
  origin: string;
  moved: string;
  texts: ChangedText[];
  proposal: number | null;
  groups: RowGroup[];
}
/**
 * A component with the words that a change added and removed.
 */
export interface ChangedText {
  component: string;
  words: MarkedWords[];
}
/**
 * A part of two texts compared: in both, only in the new or the old one, or in words what is left out.
 */
export interface MarkedWords {
  kind: "same" | "add" | "del" | "cut";
  text: string;
}
/**
 * Rows that a change made better, made worse or left: how many, and the first of them.
 */
export interface RowGroup {
  name: string;
  count: number;
  rows: RowCompared[];
}
/**
 * A change of code: its request, its outcome, and its diff.
 */
export interface Transcript {
  entries: TranscriptEntry[];
  diff: SentText | null;
}
/**
 * A part of a change of code: the request, the summary, the reason of its rejection, its log.
 */
export interface TranscriptEntry {
  role: string;
  text: SentText;
}
