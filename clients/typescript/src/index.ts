/** Everything, for Node: what `web` has, and the two ways of serving that need a process of their own. */

export * from "./web.js";
export { type RunningServer, serve, type ServeOptions } from "./serve.js";
export { serveStdio } from "./stdio.js";
