/** Everything, for Node: what `web` has, and the two ways of serving that need a process of their own. */

export { type RunningServer, type ServeOptions, serve } from "./serve.js";
export { serveStdio } from "./stdio.js";
export * from "./web.js";
