/** Watch a WebSocket after its handshake: a server that closes it with a code of 1011 to 1013 fails transiently. */

import { joined } from "../base/bytes.js";
import type { Call } from "./call.js";
import { intercept } from "./intercept.js";
import { beginCall } from "./place.js";

/** Of the connection that a handshake leaves. */
export interface FrameSocket {
  emit(event: string, ...given: unknown[]): boolean;
}

/** The first byte of a server's frame that closes, which is whole and not masked, and the longest such frame. */
const CLOSE = 0x88;
const LONGEST_CLOSE = 127;
/** The code of a connection that ended without such a frame. */
const WITHOUT_CLOSE = 1006;

/** End the handshake, and watch what the host sends; the connection is a call of its own, which has no end but these. */
export function watchWebSocket(handshake: Call, status: number, socket: FrameSocket): void {
  handshake.answered(status, () => undefined);
  handshake.completed();
  const call = beginCall(handshake.host, "WEBSOCKET", "");
  if (call === undefined) return;
  let last: Uint8Array = new Uint8Array();
  call.answered(101, () => undefined);
  intercept(socket, "emit", (_, event: string, part: Uint8Array) => {
    if (event === "data") last = joined([last, part.subarray(-LONGEST_CLOSE)]).slice(-LONGEST_CLOSE);
    const code = codeAtEnd(last);
    if (code >= 1011 && code <= 1013) call.fail({ reason: `closed with ${code}`, status: code });
    else if (event !== "end" && event !== "error") return;
    else if (code === WITHOUT_CLOSE) call.fail({ reason: `closed with ${code}`, status: code });
    else call.completed();
  });
  intercept(socket, "destroy", (_, error: unknown) => call.broke(error));
}

/** Return the code of the frame that closes a connection if it is the last that was received. */
function codeAtEnd(received: Uint8Array): number {
  for (let at = received.lastIndexOf(CLOSE); at !== -1; at = at === 0 ? -1 : received.lastIndexOf(CLOSE, at - 1)) {
    const [, length, high = 0, low = 0] = received.subarray(at);
    if (length === received.length - at - 2) return high * 256 + low;
  }
  return WITHOUT_CLOSE;
}
