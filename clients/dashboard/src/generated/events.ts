// Generated from the contract's schema by `npm run generate`; do not edit.

/**
 * An event of the page.
 */
export type PageEvent =
  | Run
  | Rows
  | Candidate
  | PoolState
  | MetricCalls
  | Proposal
  | Iteration
  | Results
  | Reflection
  | Mutation
  | Race
  | Steer
  | RunWarning
  | FailureCounts
  | SpendingSoFar
  | SealedRows
  | Ties
  | ScoreOnTestRows
  | CertificateFound
  | LeaksFound
  | Copied
  | Stopped
  | FinishedRun
  | Summary
  | Now
  | Position
  | StoreTrouble;
export type JsonValue = unknown;

/**
 * The record of the run. `settings`: without secrets. `budget`: metric calls, None without that limit.
 *
 * `splits`: rows by split. `sampled`: on how many validation rows the search scores candidates; None if on all.
 * `front_type`: GEPA's `frontier_type`. `driver`: the driving process in words; `driven`: it
 * holds the lease. Times are ISO 8601 in UTC. `reflection_model`: None if the program proposes.
 */
export interface Run {
  id: number;
  type: "run";
  run_id: string;
  name: string | null;
  status: string;
  reason: string | null;
  program: string | null;
  program_version: string | null;
  created: string;
  started: string | null;
  completed: string | null;
  settings: {
    [k: string]: JsonValue;
  };
  budget: number | null;
  components: string[];
  splits: {
    [k: string]: number;
  };
  sampled: number | null;
  objectives: string[];
  front_type: string;
  evolve: "code" | "prompts" | "both";
  reflection_model: string | null;
  output: string | null;
  parent: ParentRun | null;
  driver: string | null;
  driven: boolean;
  store: string;
  commands: CommandHint[];
}
/**
 * The run that this one was forked from, and the number from which on it is another run.
 */
export interface ParentRun {
  run: string;
  at: number | null;
}
/**
 * A command that a user may type next, and what it does.
 */
export interface CommandHint {
  command: string;
  what: string;
}
/**
 * Ids of validation rows from place `start` on, in order; several events give all `total`. Each adds to the others.
 *
 * `held_by_server`: the store has only the rows' names, the server has their contents. `training`: no validation rows
 * were given, and these are the training rows.
 */
export interface Rows {
  id: number;
  type: "rows";
  start: number;
  ids: string[];
  total: number;
  held_by_server: boolean;
  training: boolean;
}
/**
 * A candidate of the pool; a later one of the same `index` replaces it.
 *
 * `digest`: the beginning of the digest of its texts. `scores`: by place of the validation row, None if there is
 * none. `metric_calls`: GEPA's count when it was found. `found`: ISO 8601, None in runs of before. `cost_usd`: what
 * the search was known to have cost by then, None if nothing was priced. Two `parents`: a merge; none: the seed.
 */
export interface Candidate {
  id: number;
  type: "candidate";
  at: number;
  index: number;
  digest: string;
  parents: number[];
  iteration: number;
  score: number;
  metric_calls: number;
  found: string | null;
  cost_usd: number | null;
  objective_scores: {
    [k: string]: number;
  } | null;
  scores: (number | null)[];
  texts: {
    [k: string]: SentText;
  };
  code: CodeVersion | null;
}
/**
 * The beginning of a text. `omitted`: characters that are left out; `text` of the server's interface has them.
 */
export interface SentText {
  text: string;
  omitted: number;
}
/**
 * The code of a candidate. `mutation`: the number of the mutation that made it, None for a parent's code.
 */
export interface CodeVersion {
  branch: string | null;
  commit: string;
  mutation: number | null;
}
/**
 * The pool from `at` on: the candidates on the Pareto front, and the best one. All are kept, by `at`.
 */
export interface PoolState {
  id: number;
  type: "pool";
  at: number;
  front: number[];
  best: number;
}
/**
 * The metric calls as GEPA counts them from `at` on. All are kept, by `at`.
 */
export interface MetricCalls {
  id: number;
  type: "metric_calls";
  at: number;
  metric_calls: number;
}
/**
 * A proposal of reflection, or a merge; a later one of the same `key` replaces it.
 *
 * `at`: where it begins, which details are asked for by. `decided`: where its outcome was known: before that place,
 * and if it is None, the proposal is pending. `before`, `after`: sums of scores on its minibatch of `size` examples.
 * `digest`: the beginning of the digest of its texts. `candidate`: its index if it was kept. `unchanged`: it has the
 * texts of its parent. `mutation`: the number of its change of code.
 */
export interface Proposal {
  id: number;
  type: "proposal";
  key: string;
  at: number;
  decided: number | null;
  iteration: number | null;
  parents: number[];
  components: string[];
  size: number;
  before: number | null;
  after: number | null;
  outcome: "pending" | "kept" | "rejected" | "raced_out" | "empty" | "unfinished";
  why: string | null;
  candidate: number | null;
  digest: string | null;
  unchanged: boolean;
  merge: boolean;
  race: RacedOut | null;
  mutation: number | null;
}
/**
 * How a proposal lost its race: on `compared` of the validation set's `rows`, for `calls` metric calls.
 *
 * `saved`: the metric calls that full validation would have taken besides. `mean`: of its differences to the best
 * candidate on the compared rows; `bound`: of that over all rows, from above.
 */
export interface RacedOut {
  compared: number;
  rows: number;
  calls: number;
  saved: number;
  mean: number;
  bound: number;
}
/**
 * An iteration of GEPA that ended without a proposal, and why. All are kept, by `at`.
 */
export interface Iteration {
  id: number;
  type: "iteration";
  at: number;
  iteration: number;
  why: string;
}
/**
 * Results on validation rows, in columns; each adds to the others, a later one of a cell replaces it.
 *
 * A candidate's `scores` come before them. `candidates`: beginnings of digests; `rows`: places of rows; `numbers`: of
 * their entries in the journal, so that a result counts from its number + 1 on; `scores`: None for a failure.
 */
export interface Results {
  id: number;
  type: "results";
  candidates: string[];
  rows: number[];
  numbers: number[];
  scores: (number | null)[];
  statuses: string[];
}
/**
 * A prompt for new texts was answered; a later one of the same `at` replaces it.
 *
 * `proposal`: the `at` of its proposal, None if that is not known. `component`: None if the program proposed several.
 * `again`: why the first answer could not be used, if this is the second one.
 */
export interface Reflection {
  id: number;
  type: "reflection";
  at: number;
  proposal: number | null;
  component: string | null;
  model: string | null;
  again: string | null;
  input_tokens: number | null;
  output_tokens: number | null;
  cost_usd: number | null;
  seconds: number | null;
}
/**
 * A change of code was made, or rejected at `stage` for `reason`; a later one of the same `at` replaces it.
 */
export interface Mutation {
  id: number;
  type: "mutation";
  at: number;
  kind: "change_request" | "merge";
  branch: string;
  commit: string | null;
  parent_commit: string;
  request: SentText;
  location: string | null;
  stage: string | null;
  reason: string | null;
  files: string[];
  summary: string | null;
  cost_usd: number | null;
}
/**
 * A decision of a race. `rows`: how many validation rows its next block has. All are kept, by `at`.
 */
export interface Race {
  id: number;
  type: "race";
  at: number;
  validation_rows: number;
  rows: number;
  proposals: RaceStanding[];
}
/**
 * A proposal in a race: on `compared` rows its scores differ by `mean`.
 *
 * `bound`: over all rows, from above; None if there is none.
 */
export interface RaceStanding {
  candidate: string;
  compared: number;
  mean: number;
  bound: number | null;
  drops: boolean;
}
/**
 * What a user asked of the run. All are kept, by `key`.
 *
 * `at`: the place after its entry in the search, None without one. `detail`: the action as it was posted.
 * `outcome`: in the words of `evolverpc steer list`; None while it waits.
 */
export interface Steer {
  id: number;
  type: "steer";
  key: string;
  at: number | null;
  action: string;
  requested: string | null;
  by: string | null;
  detail: {
    [k: string]: JsonValue;
  };
  outcome: string | null;
}
/**
 * Something to know of; the run continued. All are kept, by `message`.
 */
export interface RunWarning {
  id: number;
  type: "warning";
  at: number | null;
  message: string;
}
/**
 * Examples that failed in the program: `failed` of `evaluated`, by type, the most frequent first.
 *
 * `cells`: places of the validation rows on which a candidate failed, by the beginning of its digest. `first`: the
 * place of the first failed example in the journal; None if only test rows failed.
 */
export interface FailureCounts {
  id: number;
  type: "failures";
  failed: number;
  evaluated: number;
  groups: FailureGroup[];
  cells: {
    [k: string]: number[];
  };
  first: number | null;
}
/**
 * Failed examples of one type. `type`: the exception's; `status`: `program_error` or `timeout`.
 *
 * `rows`: the ids of the first rows it happened on, with their split (`val 7`), `row_count` of them in all.
 * `candidates`: how many examples failed by candidate: its index, or the beginning of its digest if it was not kept.
 * `messages`: how often the most frequent messages occurred, by their beginnings; `message_count`: how many different
 * ones there are, at most 1,000. `message`, `traceback`, `log` (what the program wrote), `row`, `candidate`: of the
 * first one.
 */
export interface FailureGroup {
  type: string;
  status: "program_error" | "timeout";
  count: number;
  rows: string[];
  row_count: number;
  candidates: {
    [k: string]: number;
  };
  messages: {
    [k: string]: number;
  };
  message_count: number;
  message: string;
  traceback: string | null;
  log: string | null;
  row: string;
  candidate: string;
}
/**
 * What the run spent, by kind, and through a gateway by model. `refused`: calls that the gateway refused.
 */
export interface SpendingSoFar {
  id: number;
  type: "spending";
  cost_usd: number;
  unpriced: number;
  unreported: number;
  kinds: KindSpending[];
  models: {
    [k: string]: ModelTally;
  };
  refused: number;
}
/**
 * What attempts of one kind cost: `evaluate`, `completion`, ... `unpriced`: results without a price.
 *
 * `unreported`: those of them that came without any usage.
 */
export interface KindSpending {
  kind: string;
  calls: number;
  examples: number;
  input_tokens: number;
  output_tokens: number;
  cost_usd: number;
  seconds: number;
  unpriced: number;
  unreported: number;
}
/**
 * Calls of one model, or of all: how many, those among them that failed, what they are known to have cost.
 */
export interface ModelTally {
  calls: number;
  failed: number;
  input_tokens: number;
  output_tokens: number;
  cost_usd: number;
  unpriced: number;
}
/**
 * The test rows were committed to before the first iteration.
 */
export interface SealedRows {
  id: number;
  type: "sealed";
  rows: number;
  digest: string;
}
/**
 * The best candidates were compared on `rows` fresh rows; `best` is the best of the run.
 *
 * `validation_rows`: those of the search. `validation_left`: validation rows among the fresh ones.
 */
export interface Ties {
  id: number;
  type: "ties";
  best: number;
  rows: number;
  validation_rows: number;
  validation_left: number;
  candidates: TiedCandidate[];
}
/**
 * A candidate's means: over the validation rows of the search, over the fresh rows, and over all of these rows.
 */
export interface TiedCandidate {
  index: number;
  validation: number;
  fresh: number;
  mean: number;
}
/**
 * A candidate's mean score on the test rows, each scored `repeats` times; replaces an earlier one of its.
 */
export interface ScoreOnTestRows {
  id: number;
  type: "tested";
  candidate: number;
  score: number;
  rows: number;
  repeats: number;
}
/**
 * The certificate, or in `none` why there is none; then all other members are None.
 *
 * `low` to `high`: the interval of the mean `difference` per row at `confidence`.
 */
export interface CertificateFound {
  id: number;
  type: "certificate";
  none: string | null;
  verdict: ("improved" | "no difference" | "worse") | null;
  statement: string | null;
  candidate: number | null;
  rows: number | null;
  repeats: number | null;
  seed: number | null;
  best: number | null;
  difference: number | null;
  low: number | null;
  high: number | null;
  confidence: number | null;
  p_value: number | null;
  validation_estimate: number | null;
  validation_low: number | null;
  validation_high: number | null;
}
/**
 * Texts of validation and test rows in the best candidate. `searched`: rows by split; `rows`: how many leak.
 *
 * `shared`: how many test rows are equal to training rows (`train`) and to validation rows (`val`).
 */
export interface LeaksFound {
  id: number;
  type: "leaks";
  searched: {
    [k: string]: number;
  };
  rows: number;
  listed: LeakFound[];
  shared: {
    [k: string]: number;
  };
}
/**
 * A text of a row in a component of the best candidate. `line`: where it begins, from 1.
 */
export interface LeakFound {
  split: string;
  row: string;
  component: string;
  line: number;
  words: number;
  verbatim: boolean;
  answer: boolean;
}
/**
 * What candidates copied from training rows: `count` parts, the longest first.
 */
export interface Copied {
  id: number;
  type: "copied_examples";
  count: number;
  candidates: number[];
  copies: CopiedExample[];
}
/**
 * A part of a candidate's text that training rows have too, word for word, and that the seed lacks.
 *
 * `words`: how long it is; `text`: its beginning. `rows`: ids of the first rows that have it, `row_count` in all.
 */
export interface CopiedExample {
  candidate: number;
  component: string;
  words: number;
  text: string;
  rows: string[];
  row_count: number;
}
/**
 * A limit on money or time ended the search at this place; gone if the run is resumed (`reason` None).
 */
export interface Stopped {
  id: number;
  type: "stop";
  at: number;
  status: string | null;
  reason: string | null;
}
/**
 * The run has ended for now; None in `status` if it was resumed.
 */
export interface FinishedRun {
  id: number;
  type: "finished";
  status: string | null;
  reason: string | null;
  completed: string | null;
  active_seconds: number | null;
}
/**
 * What a run came to; of a run that is driven again, what it had come to.
 *
 * `story`: sentences. `certificate`: what it states, or why there is none. `no_improvement`: why a run did not
 * improve, with what to try; empty for other runs. `settings`: those that differ from their defaults.
 */
export interface Summary {
  id: number;
  type: "summary";
  story: string[];
  certificate: StatedFact[];
  no_improvement: StatedFact[];
  facts: StatedFact[];
  settings: {
    [k: string]: JsonValue;
  };
  tables: SummaryTable[];
  failed_steps: FailedStep[];
}
/**
 * A fact in words.
 */
export interface StatedFact {
  label: string;
  text: string;
}
/**
 * A table; each row begins with a name.
 */
export interface SummaryTable {
  heading: string;
  columns: string[];
  rows: string[][];
}
/**
 * A step of an iteration that failed, with its message and details.
 */
export interface FailedStep {
  iteration: number;
  step: string;
  text: SentText;
}
/**
 * What the run is doing at this moment, by the last heartbeat of its driver.
 *
 * `rate`: examples per second; 0 if none has finished for half a minute. `longest`: the examples that have been in
 * flight longest, from 10 s on. `last_result`: when an example last finished other than by a time-out, ISO 8601,
 * `no_result_s` seconds before the heartbeat; None before the first one. `timeouts`: examples that timed out since.
 * `usual_s`: mean seconds of an example that did not time out; None before the first one. `waiting`: calls that wait
 * for a slot; `waiting_for`: what the fleet lacks, since `waiting_since`, ISO 8601. `reflecting_since`: ISO 8601.
 * `beat_age_s`: seconds since the last heartbeat was seen to change; None if the run is not driven. `lost`: no
 * heartbeat for longer than the lease: the driver is dead or cut off.
 */
export interface Now {
  id: number;
  type: "now";
  phase: ("connecting" | "seed" | "replaying" | "optimizing" | "ties" | "testing" | "finalizing") | null;
  iteration: number | null;
  metric_calls: number | null;
  evaluated: number | null;
  in_flight: number | null;
  rate: number | null;
  longest: LongInFlight[];
  last_result: string | null;
  no_result_s: number | null;
  timeouts: number;
  usual_s: number | null;
  waiting: number | null;
  waiting_for: string | null;
  waiting_since: string | null;
  reflecting_since: string | null;
  reflecting: string[];
  endpoints: EndpointNow[];
  spent_usd: number | null;
  active_seconds: number | null;
  beat_age_s: number | null;
  lost: boolean;
  forecast: Forecast | null;
}
/**
 * An example in flight. `row`, `candidate`: as `FailureGroup` has them. `limit_s`: when the server ends it.
 *
 * `endpoint`: the address of that server; None if it is not recorded.
 */
export interface LongInFlight {
  row: string;
  candidate: string;
  seconds: number;
  limit_s: number | null;
  endpoint: string | null;
}
/**
 * An endpoint. `state`: `up`, `resting`, `refused` or `left`; `in_flight`: None if it is not known.
 */
export interface EndpointNow {
  name: string;
  state: string;
  slots: number | null;
  in_flight: number | null;
  detail: string | null;
}
/**
 * What the run will have used when its budget ends, at the present rate. `limit`: which setting ends it first.
 */
export interface Forecast {
  limit: string;
  seconds_left: number;
  cost_usd: number | null;
}
/**
 * How far this server has read. `end`: the place after the last entry of the search: the slider's range.
 *
 * `read`: all results below this place were sent. `replayed`: all facts below it that follow from GEPA's decisions
 * (`pool`, `metric_calls`, outcomes of proposals) were sent; None if they cannot be had, for the reason
 * `why_not_replayed`. `complete`: both are at the end of a run that is not driven.
 */
export interface Position {
  id: number;
  type: "position";
  end: number;
  read: number;
  replayed: number | null;
  why_not_replayed: string | null;
  complete: boolean;
}
/**
 * The run cannot be read, and why; `problem` is None if it can be again. `gone`: it was deleted.
 */
export interface StoreTrouble {
  id: number;
  type: "store";
  problem: string | null;
  gone: boolean;
}
