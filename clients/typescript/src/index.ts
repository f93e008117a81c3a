/** The exports for Node: those of `web`, the two transports that need a process of their own, and a run's result. */

export type { OptimizeSettings, RunEvent } from "./generated/optimize.js";
export { OptimizeError, optimize } from "./optimize/optimize.js";
export type { OptimizeOptions } from "./optimize/optimize-options.js";
export type { KeptCandidate, OptimizeResult, Verdict } from "./optimize/optimize-result.js";
export { CandidateError, loadCandidate, saveCandidate } from "./program/candidate-file.js";
export { type RunningServer, type ServeOptions, serve } from "./server/serve.js";
export { serveStdio } from "./server/stdio.js";
export * from "./web.js";
