/** The exports for any runtime with `fetch`; none depends on Node. */

export type { CallOptions, ClientOptions, MethodName, ParamsOf, ResultOf } from "./client.js";
export { isPending, RpcClient } from "./client.js";
export { BadResponse, ClientError, ConnectionLost, Refused } from "./client-errors.js";
export { SetupError } from "./configuration.js";
export { type ConformanceExample, conformanceProgram } from "./conformance.js";
export * from "./errors.js";
export { METHODS, type MethodTypes, PROTOCOL_VERSION } from "./generated/contract.js";
export type * from "./generated/types.js";
export { type FetchHandler, type HandlerOptions, handler } from "./handler.js";
export { Image } from "./images.js";
export type { EndpointOptions } from "./options.js";
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
  Score,
  ScoreContext,
  ScoreProgram,
} from "./program.js";
export { defineProgram } from "./program.js";
export { type RowSource, readRows } from "./row-sources.js";
export { splitRows } from "./split-rows.js";
export type { StandardSchema } from "./standard-schema.js";
export { ParseFailure, type RunStep, type StepHandle, type StepLabel, type StepResult, step } from "./steps.js";
export { MemoryStore, type StoreOptions } from "./store.js";
export { tracedFetch } from "./traced-fetch.js";
export { PACKAGE_VERSION } from "./version.js";
