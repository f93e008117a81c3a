/** The exports for any runtime with `fetch`; none depends on Node. */

export { SetupError } from "./base/configuration.js";
export type { EndpointOptions } from "./base/options.js";
export { type ErrorDetails, RpcError } from "./base/rpc-error.js";
export { PACKAGE_VERSION } from "./base/version.js";
export type { CallOptions, ClientOptions, MethodName, ParamsOf, ResultOf } from "./client/client.js";
export { BadResponse, ClientError, ConnectionLost, Refused, RpcClient } from "./client/client.js";
export { METHODS, type MethodTypes, PROTOCOL_VERSION } from "./generated/contract.js";
export * from "./generated/errors.js";
export type * from "./generated/types.js";
export { type ConformanceExample, conformanceProgram } from "./program/conformance.js";
export { Image } from "./program/images.js";
export type {
  BatchProgram,
  BatchResult,
  CallContext,
  Candidate,
  CandidateOf,
  ComponentFeedback,
  FunctionProgram,
  Program,
  ReflectiveDataset,
  RunContext,
  RunStep,
  Score,
  ScoreContext,
  ScoreProgram,
  StepHandle,
  StepLabel,
  StepResult,
} from "./program/program.js";
export { defineProgram } from "./program/program.js";
export { type RowSource, readRows } from "./rows/row-sources.js";
export { splitRows } from "./rows/split-rows.js";
export type { StandardSchema } from "./rows/standard-schema.js";
export { type FetchHandler, type HandlerOptions, handler } from "./server/handler.js";
export { MemoryStore, type StoreOptions } from "./server/store.js";
export { ParseFailure, step } from "./steps/steps.js";
export { tracedFetch } from "./steps/traced-fetch.js";
