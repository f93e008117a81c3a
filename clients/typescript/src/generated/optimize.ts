// Generated from the contract's schema by `npm run generate`; do not edit.

/**
 * The settings of `evolverpc optimize`, but those of its servers and rows.
 */
export interface OptimizeSettings {
  /**
   * Share of the training rows to keep for validation if there is no valset; 0 uses all rows for both. Default: 0.2; 0 below 50 rows.
   */
  valFraction?: number;
  /**
   * Compare best candidates that tie (4 at most) on N unused training rows: up to 4 N metric calls. Default: 0.
   */
  tieRows?: number;
  /**
   * Share of the training rows to keep as test rows, such as 0.2, if there is no testset; drawn at random.
   */
  testFraction?: number;
  /**
   * Score of an example on which the program fails or times out. Default: 0.
   */
  failureScore?: number;
  /**
   * Stop after N evaluated examples, those of the first candidate too; checked once per iteration.
   */
  maxMetricCalls?: number;
  /**
   * Compute maxMetricCalls as `dspy.GEPA(auto=...)` does.
   */
  auto?: "light" | "medium" | "heavy";
  /**
   * Stop after X US dollars, of the costs that servers and models report.
   */
  maxCostUsd?: number;
  /**
   * Stop after X seconds of work; pauses do not count.
   */
  maxSeconds?: number;
  /**
   * Stop after N iterations without a better candidate.
   */
  patience?: number;
  /**
   * Stop at this score on the validation rows.
   */
  targetScore?: number;
  /**
   * Continue although a candidate has the perfect score on every validation row. Default: no.
   */
  pastPerfect?: boolean;
  /**
   * Stop after N iterations.
   */
  maxIterations?: number;
  /**
   * Pause if more than this share of the last 50 examples fail in the program. Default: 0.5; 1 if code evolves.
   */
  failureStop?: number;
  /**
   * Model that proposes new texts, by litellm's name such as openai/gpt-5, with the provider's key. Default: program: its `propose_new_texts` does, without a key.
   */
  reflectionLm?: string;
  /**
   * Arguments of each call to it, such as temperature or api_base.
   */
  reflectionLmKwargs?: {
    [k: string]: unknown;
  };
  /**
   * Its prompt, with <curr_param> and <side_info>; as JSON, one per component (git_branch: that of code). Default: GEPA's.
   */
  reflectionPromptTemplate?:
    | string
    | {
        [k: string]: string;
      };
  /**
   * Examples per reflection. Default: GEPA's: 3.
   */
  reflectionMinibatchSize?: number;
  /**
   * Tokens of a prompt: longer records are cut in the middle. A token is counted as 4 bytes. Default: half of the model's context window; 64,000 if that is unknown.
   */
  reflectionPromptTokens?: number;
  /**
   * Tokens of a proposed text, which the model is asked to keep to. A token is counted as 4 bytes. Default: no limit.
   */
  maxComponentTokens?: number;
  /**
   * Calls to the reflection model per minute, evenly spaced. Default: no limit.
   */
  reflectionPerMinute?: number;
  /**
   * Components that one proposal changes. Default: round_robin.
   */
  moduleSelector?: "round_robin" | "all";
  /**
   * Do not reflect on a minibatch of perfect scores. Default: yes.
   */
  skipPerfectScore?: boolean;
  /**
   * The highest score that a row can have; such a row is not reflected on. Default: 1.
   */
  perfectScore?: number;
  /**
   * The lowest and the highest score that there can be: the test of a certificate rests on them. Default: 0 and perfectScore.
   *
   * @minItems 2
   * @maxItems 2
   */
  scoreRange?: [number, number];
  /**
   * Proposals per iteration: P from P parents, or N from each of them. Default: 1.
   */
  proposals?: string | number;
  /**
   * Which candidate is improved next. Default: pareto.
   */
  candidateSelectionStrategy?: "pareto" | "current_best" | "epsilon_greedy" | "top_k_pareto";
  /**
   * Improving proposals kept per iteration. Default: all.
   */
  selectionStrategy?: string;
  /**
   * What the Pareto front is kept over. Default: instance.
   */
  frontierType?: "instance" | "objective" | "hybrid" | "cartesian";
  /**
   * Score proposals on all validation rows, or race them on N of these; M others confirm the best one. Default: full.
   */
  validation?: string;
  /**
   * Score a candidate on the same row only once. Default: no.
   */
  cacheEvaluation?: boolean;
  /**
   * The program gives a candidate the same result on a row each time, so that its results are reused. Default: as the program declares.
   */
  deterministic?: boolean;
  /**
   * Also merge candidates that are good at different rows. Default: no.
   */
  useMerge?: boolean;
  /**
   * Seed of every random choice. Default: 0.
   */
  seed?: number;
  /**
   * When a proposal is accepted: a higher sum of scores on its minibatch, no lower sum, or a paired test. Default: strict.
   */
  acceptanceCriterion?: "strict_improvement" | "improvement_or_equal" | "paired" | "strict" | "equal";
  /**
   * Server that scores what the program leaves unscored, as a line of a fleet file; repeatable.
   */
  scoreWith?: string | string[];
  /**
   * Allow programs of different names, or that change during the run, with the same components. Default: no.
   */
  allowMixedPrograms?: boolean;
  /**
   * Examples in flight at the same time, over all servers together. Default: what the servers take.
   */
  concurrency?: number;
  /**
   * Seconds that one example may run, if less than the server's own limit. Default: the server's.
   */
  exampleTimeoutS?: number;
  /**
   * What is changed. Default: both if the server changes code, else prompts.
   */
  evolve?: "code" | "prompts" | "both";
  /**
   * US dollars per million tokens, if unknown or others: {"MODEL": [IN, OUT]}.
   */
  modelPrices?: {
    /**
     * @minItems 2
     * @maxItems 2
     */
    [k: string]: [number, number];
  };
  /**
   * Experiment tracker to log to, which must be installed and reads its own variables; repeatable.
   */
  tracking?: ("wandb" | "mlflow")[];
  /**
   * Name of the run, a part of its id.
   */
  name?: string;
  /**
   * Folder for the results, new or empty. Default: runs/TIME-NAME.
   */
  output?: string;
  /**
   * Database of runs: a file, or mongodb://... Default: runs/evolverpc.db.
   */
  store?: string;
  /**
   * Try a few training rows first: faults stop the run (strict) or warn (warn); off: no trial. Default: strict.
   */
  check?: "strict" | "warn" | "off";
  /**
   * Seconds without a heartbeat after which another process may resume the run. Default: 10.
   */
  leaseS?: number;
}

/** Their names. */
export const SETTINGS: readonly string[] = [
  "valFraction",
  "tieRows",
  "testFraction",
  "failureScore",
  "maxMetricCalls",
  "auto",
  "maxCostUsd",
  "maxSeconds",
  "patience",
  "targetScore",
  "pastPerfect",
  "maxIterations",
  "failureStop",
  "reflectionLm",
  "reflectionLmKwargs",
  "reflectionPromptTemplate",
  "reflectionMinibatchSize",
  "reflectionPromptTokens",
  "maxComponentTokens",
  "reflectionPerMinute",
  "moduleSelector",
  "skipPerfectScore",
  "perfectScore",
  "scoreRange",
  "proposals",
  "candidateSelectionStrategy",
  "selectionStrategy",
  "frontierType",
  "validation",
  "cacheEvaluation",
  "deterministic",
  "useMerge",
  "seed",
  "acceptanceCriterion",
  "scoreWith",
  "allowMixedPrograms",
  "concurrency",
  "exampleTimeoutS",
  "evolve",
  "modelPrices",
  "tracking",
  "name",
  "output",
  "store",
  "check",
  "leaseS"
];

/**
 * An event of a run.
 */
export type RunEvent =
  | Started
  | Warned
  | Phase
  | Progress
  | ModelCalls
  | CallRefused
  | FleetChanged
  | Budget
  | CandidateFound
  | Rejected
  | NoProposal
  | RecordsCut
  | UnusableAnswer
  | Reflecting
  | ReflectionRetried
  | MutationStarted
  | MutationProgress
  | Mutated
  | MutationRejected
  | StepFailed
  | FailedExamples
  | RetriedExamples
  | CopiedExamples
  | Steered
  | Sealed
  | TiesCompared
  | Tested
  | Finalized
  | Finished;

/**
 * The server is known and the rows are loaded. `splits` gives rows per split: train, val and, if any, test.
 *
 * `evolve`: what is changed: the program's code, its texts, or both. `training_only`: there are no validation rows, so
 * candidates are chosen by their scores on the training rows; `val` of `splits` is then their number. `sampled`: on
 * how many validation rows the search scores candidates; None if on all.
 */
export interface Started {
  seconds: number;
  at: number | null;
  event: "started";
  run_id: string;
  store: string;
  resumed: boolean;
  url: string;
  program: string;
  program_version: string | null;
  server: string;
  components: string[];
  splits: {
    [k: string]: number;
  };
  training_only: boolean;
  sampled: number | null;
  max_metric_calls: number | null;
  proposer: string;
  evolve: "code" | "prompts" | "both";
  config: {
    [k: string]: unknown;
  };
  hash_seed: string | null;
}
/**
 * A warning; the run continues.
 */
export interface Warned {
  seconds: number;
  at: number | null;
  event: "warning";
  message: string;
}
/**
 * What the run is busy with now.
 */
export interface Phase {
  seconds: number;
  at: number | null;
  event: "phase";
  phase: "connecting" | "seed" | "replaying" | "optimizing" | "ties" | "testing" | "finalizing";
}
/**
 * Examples evaluated so far by this process and in flight at this moment; a few times a second.
 *
 * `up` of `endpoints` take work, `slots` calls at once in all; `waiting`: calls that wait for one of these.
 * `spent_usd`: what is known to be spent, in every process of the run.
 */
export interface Progress {
  seconds: number;
  at: number | null;
  event: "progress";
  evaluated: number;
  in_flight: number;
  up: number;
  endpoints: number;
  slots: number;
  waiting: number;
  spent_usd: number;
}
/**
 * Models that programs called through a gateway, in every process of the run; at most twice a second.
 *
 * `by_model`: by `provider/model`. `refused`: how often the gateway let something not through.
 */
export interface ModelCalls {
  seconds: number;
  at: number | null;
  event: "model_calls";
  total: ModelTally;
  by_model: {
    [k: string]: ModelTally;
  };
  refused: number;
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
 * A gateway did not let something through: `what` a program in `sandbox` asked for, and why; the first few.
 *
 * A repeated one is reported with its `times` when the run ends.
 */
export interface CallRefused {
  seconds: number;
  at: number | null;
  event: "call_refused";
  sandbox: string;
  what: string;
  reason: string;
  times: number;
}
/**
 * An endpoint joined, was refused, rests, is back or has left; or, as `waiting`, none is left that answers.
 *
 * `url`: None where the whole fleet is meant. `after`: seconds it rests or was away, or until the run pauses.
 */
export interface FleetChanged {
  seconds: number;
  at: number | null;
  event: "fleet";
  kind: "joined" | "refused" | "resting" | "back" | "left" | "waiting" | "warning";
  url: string | null;
  detail: string;
  after: number | null;
}
/**
 * Metric calls as GEPA counts them.
 */
export interface Budget {
  seconds: number;
  at: number | null;
  event: "budget";
  metric_calls: number;
}
/**
 * A candidate entered the pool; index 0 is the seed. `score` is its mean over the validation rows.
 *
 * `front`: the indices now on the Pareto front. `best`: the index with the best score. `metric_calls`: GEPA's count
 * when the candidate had been scored.
 */
export interface CandidateFound {
  seconds: number;
  at: number | null;
  event: "candidate";
  index: number;
  parents: number[];
  iteration: number;
  score: number;
  texts: {
    [k: string]: string;
  };
  front: number[];
  best: number;
  metric_calls: number;
  objective_scores: {
    [k: string]: number;
  } | null;
}
/**
 * A proposal was not kept. Scores are sums over its minibatch, before and after; null for a merge.
 *
 * `candidate`: the beginning of its digest, as `FailureGroup` has it. `unchanged`: it has the texts of its parent.
 * `race`: how it lost its race; None if it was not better on its minibatch, or was not selected.
 */
export interface Rejected {
  seconds: number;
  at: number | null;
  event: "rejected";
  iteration: number;
  old_score: number | null;
  new_score: number | null;
  reason: string;
  candidate: string | null;
  unchanged: boolean;
  race: RacedOut | null;
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
 * An iteration ended with nothing to evaluate: all scores perfect, or no new text.
 */
export interface NoProposal {
  seconds: number;
  at: number | null;
  event: "no_proposal";
  iteration: number;
  reason: string;
}
/**
 * The records of a component do not fit into the prompt: of `records`, some were `shortened` and some `left_out`.
 *
 * `tokens`: about how many are missing. `setting`: what to raise so that fewer are.
 */
export interface RecordsCut {
  seconds: number;
  at: number | null;
  event: "records_cut";
  iteration: number;
  component: string;
  records: number;
  shortened: number;
  left_out: number;
  tokens: number;
  setting: string;
}
/**
 * An answer of reflection that held no new text of a component, which is never evaluated. `reason`: why.
 *
 * `asked_again`: the model was asked once more, with the reason; `then`: why its second answer was unusable too, None
 * if it was used. `dropped`: the proposal has no new text of the component.
 */
export interface UnusableAnswer {
  seconds: number;
  at: number | null;
  event: "unusable_answer";
  iteration: number;
  component: string;
  reason: "truncated" | "empty" | "unchanged" | "monologue" | "ambiguous" | "not text" | "too long";
  asked_again: boolean;
  then: ("truncated" | "empty" | "unchanged" | "monologue" | "ambiguous" | "not text" | "too long") | null;
  dropped: boolean;
}
/**
 * New texts of `components` were requested for one proposal; `ended`: those of the whole iteration have arrived.
 */
export interface Reflecting {
  seconds: number;
  at: number | null;
  event: "reflecting";
  iteration: number;
  components: string[];
  ended: boolean;
}
/**
 * The reflection model did not answer, because of `error`, and is asked again.
 */
export interface ReflectionRetried {
  seconds: number;
  at: number | null;
  event: "reflection_retried";
  error: string;
}
/**
 * A requested change is being made; emitted when it is, not on replay.
 */
export interface MutationStarted {
  seconds: number;
  at: number | null;
  event: "mutation_started";
  number: number;
  kind: "change_request" | "merge";
  parents: number[];
  parent_branch: string;
  request: string;
  location: string | null;
}
/**
 * The server's progress message about a mutation.
 */
export interface MutationProgress {
  seconds: number;
  at: number | null;
  event: "mutation_progress";
  number: number;
  message: string;
}
/**
 * A change of code was made; the candidate with it is evaluated next.
 *
 * `lines_added`, `lines_removed`: over all `files`. `diff`: unified, its beginning where it is very long. `cost_usd`:
 * None if it was not reported.
 */
export interface Mutated {
  seconds: number;
  at: number | null;
  event: "mutated";
  number: number;
  kind: "change_request" | "merge";
  parents: number[];
  parent_branch: string;
  request: string;
  location: string | null;
  branch: string;
  commit: string;
  files: string[];
  lines_added: number;
  lines_removed: number;
  summary: string;
  diff: string;
  components_added: string[];
  components_removed: string[];
  cost_usd: number | null;
}
/**
 * A change of code was rejected and left no trace; reflection gets the reason.
 *
 * `stage`: where it failed, as the contract names them. `log_tail`: a command's output, if any. `diff`: what was
 * refused, as in `Mutated`.
 */
export interface MutationRejected {
  seconds: number;
  at: number | null;
  event: "mutation_rejected";
  number: number;
  kind: "change_request" | "merge";
  parents: number[];
  parent_branch: string;
  request: string;
  location: string | null;
  stage: string;
  reason: string;
  log_tail: string | null;
  diff: string | null;
  cost_usd: number | null;
}
/**
 * A step of an iteration failed; GEPA continues with the next one.
 */
export interface StepFailed {
  seconds: number;
  at: number | null;
  event: "failure";
  iteration: number;
  step: string;
  message: string;
  details: string | null;
}
/**
 * Examples that failed in the program, in every process of the run: `failed` of `evaluated`.
 *
 * `groups`: by type, the most frequent first.
 */
export interface FailedExamples {
  seconds: number;
  at: number | null;
  event: "failed_examples";
  failed: number;
  evaluated: number;
  groups: FailureGroup[];
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
 * Examples that were tried again after an `infra_error`, in every process of the run: how many different ones.
 *
 * `groups`: their failures by host and reason, the most frequent first.
 */
export interface RetriedExamples {
  seconds: number;
  at: number | null;
  event: "retried_examples";
  examples: number;
  groups: RetryGroup[];
}
/**
 * How often examples failed transiently for one reason. `host`: that failed, None if the server names none.
 */
export interface RetryGroup {
  host: string | null;
  reason: string;
  failures: number;
}
/**
 * What candidates copied from training rows: `count` parts, the longest of each candidate first.
 */
export interface CopiedExamples {
  seconds: number;
  at: number | null;
  event: "copied_examples";
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
 * A user's request to the run was taken, or `refused` for this reason. `action`: its kind; `text`: in words.
 *
 * `number`: of its entry in the journal. `author`: `user@host`; `created`: when it was made, by the author's clock.
 * `best`, `front`: of the pool after it. `max_metric_calls`: the new limit, None if it stays or is replayed.
 */
export interface Steered {
  seconds: number;
  at: number | null;
  event: "steered";
  action: string;
  text: string;
  author: string;
  created: string;
  number: number | null;
  refused: string | null;
  best: number | null;
  front: number[];
  max_metric_calls: number | null;
}
/**
 * The test rows were committed to before the first iteration. `digest`: of their ids and contents.
 */
export interface Sealed {
  seconds: number;
  at: number | null;
  event: "sealed";
  rows: number;
  digest: string;
}
/**
 * The best candidates were compared on `rows` fresh rows: with `tie_rows` all that tie; after a race, the seed too.
 *
 * `best`: the one with the highest mean over validation and fresh rows. `validation_rows`: those of the search.
 * `validation_left`: fresh rows that are validation rows; the others are training rows, of which `asked` were asked
 * for. `candidates`: each with its means. `metric_calls`: of the run, with these evaluations.
 */
export interface TiesCompared {
  seconds: number;
  at: number | null;
  event: "ties_compared";
  best: number;
  rows: number;
  validation_rows: number;
  validation_left: number;
  asked: number;
  candidates: TiedCandidate[];
  metric_calls: number;
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
 * A candidate's mean score over the test rows, each of which was scored `repeats` times.
 */
export interface Tested {
  seconds: number;
  at: number | null;
  event: "tested";
  index: number;
  score: number;
  rows: number;
  repeats: number;
}
/**
 * The best candidate was reported to the program; `error`: why that failed. `endpoint`: the server's URL.
 */
export interface Finalized {
  seconds: number;
  at: number | null;
  event: "finalized";
  message: string | null;
  error: string | null;
  endpoint: string | null;
}
/**
 * The last event. `files` are the names written into the output folder; costs are those that were reported.
 *
 * `model_usd`: what programs' calls of models cost, where a gateway counted them; then no other cost of theirs is.
 *
 * `details`: what is known of a failure beyond its reason. `unpriced`: results without a price, by kind of
 * work. `resume_with`: flags without which a resumed run would end in the same way. `search_complete`: GEPA ended the
 * search between two iterations, so that every result is counted in `metric_calls`. `active_seconds`: how long
 * processes have driven the run, those before a `resume` included; None if that is not known. `reused`: results that
 * were not made again, as the program is deterministic; None if it is not known to be. `infrastructure`: the store,
 * the lease, the servers or the driver process was lost, so that the same run can continue without a change.
 * `in_replay`: a resumed run ended before the end of its record, so that these events show less than the record has.
 */
export interface Finished {
  seconds: number;
  at: number | null;
  event: "finished";
  status: "completed" | "cancelled" | "paused" | "failed" | "refused";
  reason: string | null;
  infrastructure: boolean;
  details: string | null;
  metric_calls: number;
  evaluation_usd: number | null;
  reflection_usd: number | null;
  mutation_usd: number | null;
  model_usd: number | null;
  unpriced: {
    [k: string]: number;
  };
  files: string[];
  resume_with: string[];
  search_complete: boolean;
  active_seconds: number | null;
  reused: number | null;
  in_replay: boolean;
}
