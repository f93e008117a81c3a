/** Watch a WebSocket after its handshake: a server that closes it with a code of 1011 to 1013 fails transiently. */

import type { Call } from "./call.js";
import { intercept } from "./intercept.js";
import { beginCall } from "./place.js";

/** Of the connection that a handshake leaves. */
export interface FrameSocket {
  emit(event: string, ...given: unknown[]): boolean;
}

const CLOSE = 8;

/** End the handshake, and watch what the host sends; the connection is a call of its own, which has no end but these. */
export function watchWebSocket(handshake: Call, status: number, socket: FrameSocket): void {
  handshake.answered(status, () => undefined);
  handshake.completed();
  const call = beginCall(handshake.host, "WEBSOCKET", "");
  if (call === undefined) return;
  const frames = new FrameReader((opcode, code) => {
    if (opcode === CLOSE && code >= 1011 && code <= 1013) call.fail({ reason: `closed with ${code}`, status: code });
    else if (opcode === CLOSE) call.completed();
  });
  call.answered(101, () => undefined);
  intercept(socket, "emit", (_, event: string, part: Uint8Array) => {
    if (event === "data") frames.read(part);
    else if (event === "end" || event === "error") call.fail({ reason: "closed with 1006", status: 1006 });
  });
  intercept(socket, "destroy", (_, error: unknown) => call.broke(error));
}

/** Reads the heads of a server's frames, which are not masked, and the code of a frame that closes. */
class FrameReader {
  #head: number[] = [];
  #skip = 0;

  constructor(private readonly onFrame: (opcode: number, code: number) => void) {}

  read(part: Uint8Array): void {
    for (let at = 0; at < part.length; ) {
      const skipped = Math.min(this.#skip, part.length - at);
      this.#skip -= skipped;
      at += skipped;
      if (at < part.length) this.#byte(part[at++] as number);
    }
  }

  #byte(byte: number): void {
    const head = this.#head;
    head.push(byte);
    const [first = 0, short = 0] = head;
    const lengthBytes = short === 127 ? 8 : short === 126 ? 2 : 0;
    if (head.length < 2 + lengthBytes) return;
    const opcode = first & 0xf;
    const length =
      lengthBytes === 0 ? short : head.slice(2, 2 + lengthBytes).reduce((sum, each) => sum * 256 + each, 0);
    const codeBytes = opcode === CLOSE && length >= 2 ? 2 : 0;
    if (head.length < 2 + lengthBytes + codeBytes) return;
    const [high = 0, low = 0] = head.slice(2 + lengthBytes);
    this.onFrame(opcode, high * 256 + low);
    this.#skip = length - codeBytes;
    this.#head = [];
  }
}
