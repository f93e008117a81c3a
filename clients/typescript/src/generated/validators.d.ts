// Generated from the contract's schema by `npm run generate`; do not edit.

/** One broken rule, at a JSON pointer into the value. */
export interface SchemaError {
  instancePath: string;
  schemaPath: string;
  keyword: string;
  params: Record<string, unknown>;
  message?: string;
}

/** True if the value fits; else `errors` holds the reasons until the next call. */
export interface SchemaValidator {
  (value: unknown): boolean;
  errors?: SchemaError[] | null;
}

export const ApplyMutationParams: SchemaValidator;
export const ApplyMutationResult: SchemaValidator;
export const CancelParams: SchemaValidator;
export const CancelResult: SchemaValidator;
export const CandidateItem: SchemaValidator;
export const ChangeRequest: SchemaValidator;
export const ComponentInfo: SchemaValidator;
export const DatasetInfo: SchemaValidator;
export const DiscoverParams: SchemaValidator;
export const DiscoverResult: SchemaValidator;
export const ErrorObject: SchemaValidator;
export const ErrorResponse: SchemaValidator;
export const EvalBatch: SchemaValidator;
export const EvaluateParams: SchemaValidator;
export const EvaluateResult: SchemaValidator;
export const Example: SchemaValidator;
export const ExampleError: SchemaValidator;
export const ExampleResult: SchemaValidator;
export const FinalizeParams: SchemaValidator;
export const FinalizeResult: SchemaValidator;
export const GetResultParams: SchemaValidator;
export const HostCalls: SchemaValidator;
export const ImageContent: SchemaValidator;
export const ImportCommitsParams: SchemaValidator;
export const ImportCommitsResult: SchemaValidator;
export const Limits: SchemaValidator;
export const ListExamplesParams: SchemaValidator;
export const ListExamplesResult: SchemaValidator;
export const ListedExample: SchemaValidator;
export const MakeReflectiveDatasetParams: SchemaValidator;
export const MakeReflectiveDatasetResult: SchemaValidator;
export const Merge: SchemaValidator;
export const Meta: SchemaValidator;
export const ModelUsage: SchemaValidator;
export const MutationName: SchemaValidator;
export const OutlineCodeParams: SchemaValidator;
export const OutlineCodeResult: SchemaValidator;
export const PartialResult: SchemaValidator;
export const PastMutation: SchemaValidator;
export const Patch: SchemaValidator;
export const Pending: SchemaValidator;
export const PendingCall: SchemaValidator;
export const ProgramInfo: SchemaValidator;
export const Progress: SchemaValidator;
export const ProposeNewTextsParams: SchemaValidator;
export const ProposeNewTextsResult: SchemaValidator;
export const Request: SchemaValidator;
export const RpcDiscoverParams: SchemaValidator;
export const RunInfo: SchemaValidator;
export const ScoreParams: SchemaValidator;
export const ScoreResult: SchemaValidator;
export const ServerInfo: SchemaValidator;
export const Step: SchemaValidator;
export const SuccessResponse: SchemaValidator;
export const Texts: SchemaValidator;
export const Usage: SchemaValidator;
