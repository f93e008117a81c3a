/** Watch what the examples of this process do over the network. */

import { builtin, isNode } from "../base/runtime.js";
import { watchFetch } from "./watch-fetch.js";
import { watchHttp } from "./watch-http.js";
import { watchHttp2 } from "./watch-http2.js";
import { watchSockets } from "./watch-sockets.js";
import { watchUndici } from "./watch-undici.js";

let isWatching = false;

/** Begin with that, once in a process. */
export function watchNetwork(): void {
  if (isWatching) return;
  isWatching = true;
  if (!isNode()) {
    watchFetch();
    return;
  }
  watchUndici();
  watchHttp();
  watchHttp2();
  watchSockets();
  // For modules that import `connect` of node:http2 by its name.
  builtin<{ syncBuiltinESMExports?: () => void }>("node:module")?.syncBuiltinESMExports?.();
}
