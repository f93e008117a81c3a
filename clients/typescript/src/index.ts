/** The exports for Node: those of `web`, the two transports that need a process of their own, and a run's result. */

export { CandidateError, loadCandidate, saveCandidate } from "./candidate-file.js";
export type { OptimizeSettings, RunEvent } from "./generated/optimize.js";
export { OptimizeError, optimize } from "./optimize.js";
export type { OptimizeOptions } from "./optimize-options.js";
export type { KeptCandidate, OptimizeResult } from "./optimize-result.js";
export { type RunningServer, type ServeOptions, serve } from "./serve.js";
export { serveStdio } from "./stdio.js";
export * from "./web.js";
