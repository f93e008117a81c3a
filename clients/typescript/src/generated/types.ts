// Generated from the contract's schema by `npm run generate`; do not edit.

/**
 * Every type of the wire by its name.
 */
export interface WireTypes {
  ApplyMutationParams: ApplyMutationParams;
  ApplyMutationResult: ApplyMutationResult;
  CancelParams: CancelParams;
  CancelResult: CancelResult;
  CandidateItem: CandidateItem;
  ChangeRequest: ChangeRequest;
  ComponentInfo: ComponentInfo;
  DatasetInfo: DatasetInfo;
  DiscoverParams: DiscoverParams;
  DiscoverResult: DiscoverResult;
  ErrorObject: ErrorObject;
  ErrorResponse: ErrorResponse;
  EvalBatch: EvalBatch;
  EvaluateParams: EvaluateParams;
  EvaluateResult: EvaluateResult;
  Example: Example;
  ExampleError: ExampleError;
  ExampleResult: ExampleResult;
  FinalizeParams: FinalizeParams;
  FinalizeResult: FinalizeResult;
  GetResultParams: GetResultParams;
  HostCalls: HostCalls;
  ImageContent: ImageContent;
  ImportCommitsParams: ImportCommitsParams;
  ImportCommitsResult: ImportCommitsResult;
  Limits: Limits;
  ListExamplesParams: ListExamplesParams;
  ListExamplesResult: ListExamplesResult;
  ListedExample: ListedExample;
  MakeReflectiveDatasetParams: MakeReflectiveDatasetParams;
  MakeReflectiveDatasetResult: MakeReflectiveDatasetResult;
  Merge: Merge;
  Meta: Meta;
  ModelUsage: ModelUsage;
  MutationName: MutationName;
  OutlineCodeParams: OutlineCodeParams;
  OutlineCodeResult: OutlineCodeResult;
  PartialResult: PartialResult;
  PastMutation: PastMutation;
  Patch: Patch;
  Pending: Pending;
  PendingCall: PendingCall;
  ProgramInfo: ProgramInfo;
  Progress: Progress;
  ProposeNewTextsParams: ProposeNewTextsParams;
  ProposeNewTextsResult: ProposeNewTextsResult;
  Request: Request;
  RpcDiscoverParams: RpcDiscoverParams;
  RunInfo: RunInfo;
  ScoreParams: ScoreParams;
  ScoreResult: ScoreResult;
  ServerInfo: ServerInfo;
  Step: Step;
  SuccessResponse: SuccessResponse;
  Texts: Texts;
  Usage: Usage;
}
/**
 * Apply one mutation to a candidate; all of it or nothing. Without a `name` the server gives it one of its own.
 */
export interface ApplyMutationParams {
  _meta?: Meta | null;
  candidate: {
    [k: string]: string;
  };
  mutation: ChangeRequest | Patch | Texts | Merge;
  name?: MutationName | null;
}
/**
 * Optional in every request; unknown keys are always allowed, so that tracing headers and the like may ride along.
 *
 * `protocol_version`: the version this request is written in; without it, the server's newest.
 * `call_id`: makes the call idempotent (capability `idempotency`).
 * `wait_s`: seconds to wait before answering `pending` (capability `async`); needs a `call_id`.
 * `group`: names a minibatch; asks for `trajectory_ref` in place of inline trajectories (capability `refs`).
 * `example_timeout_s`: lowers the server's limit of this name for the examples of this call (capability
 * `example_timeout`); a larger value changes nothing.
 */
export interface Meta {
  protocol_version?: string | null;
  call_id?: string | null;
  wait_s?: number | null;
  group?: string | null;
  example_timeout_s?: number | null;
  [k: string]: unknown;
}
/**
 * A change in natural language, for a coding agent; `location`: where to look first.
 *
 * `records`: what the program did on examples, as reflection saw it. `history`: what was tried before, oldest first.
 */
export interface ChangeRequest {
  kind: "change_request";
  request: string;
  location?: string | null;
  records?: {
    [k: string]: unknown;
  }[];
  history?: PastMutation[];
}
/**
 * A change asked for earlier on the same line of candidates, and its outcome.
 *
 * `rejected`: nothing was changed, for `reason` at `stage`. `not_better`: it was evaluated and dropped. `accepted`: it
 * is part of the line. Scores are means over the rows both were evaluated on; null where it never came to that.
 */
export interface PastMutation {
  request: string;
  outcome: "accepted" | "not_better" | "rejected";
  stage?: string | null;
  reason?: string | null;
  score?: number | null;
  parent_score?: number | null;
}
/**
 * A unified diff against the candidate's commit.
 */
export interface Patch {
  kind: "patch";
  diff: string;
}
/**
 * Component texts, written to where the program keeps them.
 */
export interface Texts {
  kind: "texts";
  texts: {
    [k: string]: string;
  };
}
/**
 * Join this candidate's code with another's.
 */
export interface Merge {
  kind: "merge";
  other: {
    [k: string]: string;
  };
}
/**
 * Names one mutation of one run: its branch is `evolve/<run>/<number>`, and asking again finds what it made.
 */
export interface MutationName {
  run: string;
  number: number;
}
/**
 * The new candidate, and what was done to make it.
 *
 * `branch`: where the commit can be found. `diff`: unified, from `parent` to `commit`. `bundle`: base64 of a git
 * bundle with what `commit` has and its parents have not, for `import_commits` of another server.
 */
export interface ApplyMutationResult {
  candidate: {
    [k: string]: string;
  };
  commit: string;
  parent: string;
  diff: string;
  files: string[];
  summary: string;
  branch?: string | null;
  bundle?: string | null;
  usage?: Usage | null;
  components_added?: string[];
  components_removed?: string[];
}
/**
 * What one attempt cost. A field left out is unknown, which is not the same as zero.
 *
 * `models`: the calls by the model's name, such as `openai/gpt-5`; an optimizer may price them if there is no
 * `cost_usd`.
 */
export interface Usage {
  cost_usd?: number | null;
  input_tokens?: number | null;
  output_tokens?: number | null;
  calls?: number | null;
  models?: {
    [k: string]: ModelUsage;
  } | null;
}
/**
 * What the calls of one model took. A field left out is unknown; the parts of the input are then zero.
 *
 * `input_tokens`: all that was read, `cached_input_tokens` of them from a cache, `cache_write_tokens` of them written
 * to one, of which `cache_write_hour_tokens` for an hour rather than for minutes. `output_tokens`: reasoning included.
 */
export interface ModelUsage {
  calls?: number | null;
  input_tokens?: number | null;
  output_tokens?: number | null;
  cached_input_tokens?: number | null;
  cache_write_tokens?: number | null;
  cache_write_hour_tokens?: number | null;
}
/**
 * Stop a call. Its finished examples keep their results, the others become `cancelled`.
 */
export interface CancelParams {
  _meta?: Meta | null;
  call_id: string;
}
/**
 * `cancelled`: it was running and has been stopped. `finished`: it was already done, its answer stands.
 */
export interface CancelResult {
  status: "cancelled" | "finished";
}
/**
 * One candidate of an `evaluate` for several; `size`: how many consecutive examples of the batch are its own.
 */
export interface CandidateItem {
  candidate: {
    [k: string]: string;
  };
  size: number;
}
/**
 * One named component of the candidate.
 *
 * `kind` is `text` for prompts and rules, `code` for a git commit, `added` for texts that code mutations added.
 */
export interface ComponentInfo {
  name: string;
  kind?: string;
  description?: string | null;
}
/**
 * A split the server holds: its number of rows, and a digest that changes when any row does.
 */
export interface DatasetInfo {
  size: number;
  digest: string;
}
/**
 * `discover` takes no params of its own.
 */
export interface DiscoverParams {
  _meta?: Meta | null;
}
/**
 * Everything a client must know before its first `evaluate`. Unknown capability names are to be ignored.
 */
export interface DiscoverResult {
  /**
   * @minItems 1
   */
  protocol_versions: [string, ...string[]];
  server: ServerInfo;
  program: ProgramInfo;
  datasets?: {
    [k: string]: DatasetInfo;
  };
  capabilities?: string[];
  limits: Limits;
}
/**
 * The process that answers. `instance_id` is new at every start: refs and call ids belong to one instance.
 *
 * `agent`: the coding agent that carries out change requests, with its model if it is known (capability `mutations`).
 */
export interface ServerInfo {
  name: string;
  version: string;
  language: string;
  instance_id: string;
  agent?: string | null;
}
/**
 * The program under optimisation; one that only scores what others answer (capability `scoring`) has no components.
 *
 * `version` is the program's own, null where it declares none. `digest` changes when the program's code or
 * configuration does, as far as the server sees them; null where it sees nothing. `files`: the files that `digest`
 * covers, each with a digest of its own, so that a client can name those that have changed; as `data NAME` also what
 * functions read and may change, which `digest` does not cover. `changed_files`: those of
 * `files` that were changed after the program was loaded, so that it runs without the change; null if none is known.
 * `deterministic`: true where a candidate has the same output and score each time it runs on a row, so that a client
 * need not run it twice; null where the program does not declare it.
 */
export interface ProgramInfo {
  name: string;
  version?: string | null;
  digest?: string | null;
  files?: {
    [k: string]: string;
  } | null;
  changed_files?: string[] | null;
  deterministic?: boolean | null;
  components: ComponentInfo[];
  seed_candidate: {
    [k: string]: string;
  };
}
/**
 * The limits of a server.
 *
 * `max_concurrency`: examples running at once; more are queued, and beyond the queue refused as `overloaded`.
 * `max_batch_size`: examples in one call. `max_request_bytes`: bytes of one HTTP body.
 * `example_timeout_s`: seconds one example may run, queueing excluded; null where the server sets no deadline.
 * `max_batch_entries`: requests in one JSON-RPC array (capability `batch`).
 * `whole_batches`: true where the program evaluates a batch as one unit, so that a minibatch must be one call.
 * `abandon_after_s`, `keep_answers_s`: see capability `idempotency`.
 * `max_result_bytes`: bytes of one example's result; an example with a larger one is a `program_error`.
 */
export interface Limits {
  max_concurrency: number;
  max_batch_size: number;
  max_request_bytes: number;
  example_timeout_s?: number | null;
  max_batch_entries?: number | null;
  whole_batches?: boolean;
  abandon_after_s?: number | null;
  keep_answers_s?: number | null;
  max_result_bytes?: number | null;
}
/**
 * An error. `data.retryable`: whether the same request, later or elsewhere, can succeed.
 */
export interface ErrorObject {
  code: number;
  message: string;
  data?: unknown;
}
/**
 * A refusal; `id` is null where the request's could not be read.
 */
export interface ErrorResponse {
  jsonrpc: "2.0";
  id: string | number | null;
  error: ErrorObject;
}
/**
 * An evaluated minibatch: the examples as sent and the results as received, `results[i]` for `batch[i]`.
 */
export interface EvalBatch {
  batch: Example[];
  results: ExampleResult[];
}
/**
 * One row: `{id, data}` when the optimizer holds the rows, `{id, split}` when the server does.
 *
 * `untyped` (capability `untyped_rows`): the values are texts of a file that has no types, such as CSV, so the program
 * gives them the types that it declares.
 */
export interface Example {
  id: string;
  data?: unknown;
  split?: string;
  untyped?: boolean;
}
/**
 * The outcome of one example; `score` is a finite number exactly when `status` is `ok`, else null.
 *
 * `component_feedback` (capability `steps`): feedback on single components, by name, in place of `feedback`. `log`:
 * what the program wrote to stdout and stderr while the example ran, bounded; a failed example has it in `error`.
 * `metric_calls`: what the example counts for in the optimizer's budget; 1 where it is left out. `trajectory_length`:
 * of the trajectory that `trajectory_ref` names: the steps of a list, or the fields of an object. `hosts`: the calls
 * that the example made over the network, by host, where the server watches them.
 */
export interface ExampleResult {
  status: "ok" | "program_error" | "timeout" | "infra_error" | "cancelled" | "rollout";
  score: number | null;
  output?: unknown;
  feedback?: string | null;
  component_feedback?: {
    [k: string]: string;
  } | null;
  log?: string | null;
  trajectory?: unknown;
  trajectory_ref?: string | null;
  trajectory_length?: number | null;
  objective_scores?: {
    [k: string]: number;
  } | null;
  error?: ExampleError | null;
  usage?: Usage | null;
  metric_calls?: number | null;
  hosts?: {
    [k: string]: HostCalls;
  } | null;
  seconds: number;
}
/**
 * Why an example failed. `log`: what the program wrote to stdout and stderr while it ran, bounded.
 */
export interface ExampleError {
  type: string;
  message: string;
  traceback?: string | null;
  log?: string | null;
}
/**
 * The outcomes of an example's calls to one host over the network.
 *
 * `succeeded`: calls that the host answered. `failed`: calls that failed transiently: there was no
 * connection, it was cut, the host timed out, or it answered with status 408, 425, 429 or 5xx, with an error event,
 * or with a body that states one of these. `reason`: how the last of these failed, such as `429`, `connection
 * refused` or `cut off`. `retry_after_s`: how long the host asked to wait, in seconds.
 */
export interface HostCalls {
  succeeded?: number;
  failed?: number;
  reason?: string | null;
  retry_after_s?: number | null;
}
/**
 * Run the program, as this candidate makes it, on each example.
 *
 * `items` (capability `batch_evaluate`): several candidates in one call. Their sizes add up to the length of `batch`,
 * which holds their examples one after another; `candidate` is the first of them.
 */
export interface EvaluateParams {
  _meta?: Meta | null;
  candidate: {
    [k: string]: string;
  };
  batch: Example[];
  capture_traces?: boolean;
  items?: CandidateItem[] | null;
}
/**
 * `results[i]` belongs to `batch[i]`; the two have the same length.
 */
export interface EvaluateResult {
  results: ExampleResult[];
}
/**
 * The best candidate of a finished run and its mean validation score.
 */
export interface FinalizeParams {
  _meta?: Meta | null;
  best_candidate: {
    [k: string]: string;
  };
  best_score: number;
  run: RunInfo;
}
/**
 * The run that ended. Scores are means over the validation rows.
 */
export interface RunInfo {
  id: string;
  metric_calls: number;
  candidates: number;
  seed_score: number;
}
/**
 * `message`: a text for the person who ran the optimisation, for instance the file that the program wrote.
 */
export interface FinalizeResult {
  message?: string | null;
}
/**
 * Collect the answer of an earlier call; it has the shape, or the error, of that call's own answer.
 *
 * `partial` (capability `partial`): a `pending` answer of an `evaluate` has the results that are finished.
 */
export interface GetResultParams {
  _meta?: Meta | null;
  call_id: string;
  wait_s?: number;
  partial?: boolean;
}
/**
 * An image of the records, PNG or any other; a record names it by `{"$image": id}`.
 */
export interface ImageContent {
  media_type: string;
  base64: string;
}
/**
 * Take over commits made by another server. `bundles`: base64 of git bundles, parents before children.
 */
export interface ImportCommitsParams {
  _meta?: Meta | null;
  /**
   * @minItems 1
   */
  bundles: [string, ...string[]];
}
/**
 * `commits`: the full ids of the commits that can be evaluated here now, one per bundle.
 */
export interface ImportCommitsResult {
  commits: string[];
}
/**
 * One page of a split.
 */
export interface ListExamplesParams {
  _meta?: Meta | null;
  split: string;
  offset?: number;
  limit?: number;
}
/**
 * A page in the split's own order; `total` rows in all.
 */
export interface ListExamplesResult {
  examples: ListedExample[];
  total: number;
}
/**
 * A row by its id; `data` is left out where rows do not leave the server.
 */
export interface ListedExample {
  id: string;
  split: string;
  data?: unknown;
}
/**
 * Turn traced results into records for the components to update.
 *
 * `seed` (capability `steps`): of the choice between several steps of a component in one example; 0 if absent.
 * `adapter_state` (capability `adapter_state`): opaque; sent back as the last answer gave it.
 */
export interface MakeReflectiveDatasetParams {
  _meta?: Meta | null;
  candidate: {
    [k: string]: string;
  };
  eval_batch: EvalBatch;
  components_to_update: string[];
  seed?: number | null;
  adapter_state?: unknown;
}
/**
 * Records for each component asked for; `adapter_state` where the program keeps any.
 *
 * `images` (capability `images`): the images that the records name by `{"$image": id}`, by id, each of them once.
 * `usage`: of the models that the program called for the records; left out if it called none.
 */
export interface MakeReflectiveDatasetResult {
  dataset: {
    [k: string]: {
      [k: string]: unknown;
    }[];
  };
  adapter_state?: unknown;
  images?: {
    [k: string]: ImageContent;
  } | null;
  usage?: Usage | null;
}
/**
 * Describe the code of a candidate to a reflection model that is about to request a change of it.
 */
export interface OutlineCodeParams {
  _meta?: Meta | null;
  candidate: {
    [k: string]: string;
  };
}
/**
 * `outline`: text for a model: the files, what they define, and the program's own notes; bounded.
 */
export interface OutlineCodeResult {
  outline: string;
}
/**
 * The result of one finished example, as the call's answer will hold it at `index`.
 */
export interface PartialResult {
  index: number;
  result: ExampleResult;
}
/**
 * The answer of any call that is still running when its `wait_s` is over.
 */
export interface Pending {
  pending: PendingCall;
}
/**
 * A call that was not done within `wait_s`; ask `get_result` with its `call_id`.
 *
 * `results`: those of an `evaluate` that are finished, by growing `index`, if they were asked for.
 */
export interface PendingCall {
  call_id: string;
  progress: Progress;
  results?: PartialResult[] | null;
}
/**
 * The progress of a pending call, in examples; `message`: the present step, in a few words, if there is one.
 */
export interface Progress {
  done: number;
  total: number;
  message?: string | null;
}
/**
 * Ask the program itself for new texts (capability `proposals`).
 *
 * `images` (capability `images`): those of the records, as `make_reflective_dataset` returned them.
 */
export interface ProposeNewTextsParams {
  _meta?: Meta | null;
  candidate: {
    [k: string]: string;
  };
  reflective_dataset: {
    [k: string]: {
      [k: string]: unknown;
    }[];
  };
  components_to_update: string[];
  images?: {
    [k: string]: ImageContent;
  } | null;
}
/**
 * Component name -> new text, for components that were asked for.
 *
 * `refused`: why what the program gave for a component is no text, by component: it has another type, or half of a
 * surrogate pair. `usage`: of the models that the program called for the texts; left out if it called none.
 */
export interface ProposeNewTextsResult {
  texts: {
    [k: string]: string;
  };
  refused?: {
    [k: string]: string;
  } | null;
  usage?: Usage | null;
}
/**
 * A request; without `id` a notification, which gets no answer.
 */
export interface Request {
  jsonrpc: "2.0";
  method: string;
  params?: {
    [k: string]: unknown;
  };
  id?: string | number | null;
}
/**
 * `rpc.discover` takes no params of its own.
 */
export interface RpcDiscoverParams {
  _meta?: Meta | null;
}
/**
 * Score outputs that another endpoint made. `results[i]` belongs to `batch[i]`.
 *
 * With the capability `score_trajectories` the results hold the trajectories of the runs, inline.
 */
export interface ScoreParams {
  _meta?: Meta | null;
  batch: Example[];
  results: ExampleResult[];
}
/**
 * The same results with scores, in the same order; `usage` and `seconds` of those scored are the scoring's own.
 */
export interface ScoreResult {
  results: ExampleResult[];
}
/**
 * One part of an example's run (capability `steps`): what went into it, and what came out.
 *
 * A trajectory with steps is an object `{"steps": [Step], ...}`. `component`: the name of the component whose text
 * the step used, if it used one; `name`: of a step without a component, such as a tool. `inputs`: by name. `error`:
 * why the step failed; of type `parse_failure` if `raw`, the model's answer, did not have the structure that
 * `expected` describes. `seconds`: from the start of the step to its end. `steps`: those that ran within it, in the
 * order in which they started.
 */
export interface Step {
  component?: string | null;
  name?: string | null;
  inputs?: unknown;
  outputs?: unknown;
  error?: ExampleError | null;
  raw?: string | null;
  expected?: string | null;
  usage?: Usage | null;
  seconds?: number | null;
  steps?: Step[] | null;
}
/**
 * An answer.
 */
export interface SuccessResponse {
  jsonrpc: "2.0";
  id: string | number | null;
  result: unknown;
}
