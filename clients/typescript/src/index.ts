/** The exports for Node: those of `web`, and the two transports that need a process of their own. */

export { type RunningServer, type ServeOptions, serve } from "./serve.js";
export { serveStdio } from "./stdio.js";
export * from "./web.js";
