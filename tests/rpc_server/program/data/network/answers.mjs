// A scripted server for clients of many kinds: how it answers is the first part of the path, or the name of the user.
// Prints its addresses as one line of JSON.
import { createServer } from "node:http";
import http2 from "node:http2";
import net from "node:net";
import { createHash } from "node:crypto";

export const TEXT = "Rome";
const USAGE = { prompt_tokens: 5, completion_tokens: 2, total_tokens: 7 };
const OUTAGES = { openai: { message: "overloaded", type: "server_error", code: "rate_limit_exceeded" }, anthropic: { type: "overloaded_error", message: "Overloaded" }, google: { code: 503, message: "overloaded", status: "UNAVAILABLE" } };

const kindOf = (path) => (/messages$/.test(path) ? "anthropic" : /generatecontent/i.test(path) ? "google" : /converse/.test(path) ? "aws" : "openai");
const sse = (events) => events.map(({ event, ...data }) => `${event ? `event: ${event}\n` : ""}data: ${JSON.stringify(data.data ?? data)}\n\n`).join("");

/** What a model answers, whole or as events. */
const WHOLE = {
  openai: { id: "1", object: "chat.completion", created: 1, model: "m", choices: [{ index: 0, message: { role: "assistant", content: TEXT }, finish_reason: "stop" }], usage: USAGE },
  anthropic: { id: "1", type: "message", role: "assistant", model: "m", content: [{ type: "text", text: TEXT }], stop_reason: "end_turn", usage: { input_tokens: 5, output_tokens: 2 } },
  google: { candidates: [{ content: { role: "model", parts: [{ text: TEXT }] }, finishReason: "STOP" }] },
  aws: { output: { message: { role: "assistant", content: [{ text: TEXT }] } }, stopReason: "end_turn", usage: { inputTokens: 5, outputTokens: 2, totalTokens: 7 }, metrics: { latencyMs: 1 } },
};
const BEGINNING = {
  openai: [{ id: "1", object: "chat.completion.chunk", created: 1, model: "m", choices: [{ index: 0, delta: { role: "assistant", content: TEXT } }] }],
  anthropic: [
    { event: "message_start", type: "message_start", message: { id: "1", type: "message", role: "assistant", model: "m", content: [], usage: { input_tokens: 5, output_tokens: 1 } } },
    { event: "content_block_start", type: "content_block_start", index: 0, content_block: { type: "text", text: "" } },
    { event: "content_block_delta", type: "content_block_delta", index: 0, delta: { type: "text_delta", text: TEXT } },
  ],
  google: [{ candidates: [{ content: { role: "model", parts: [{ text: TEXT }] } }] }],
};
const END = {
  openai: [{ id: "1", object: "chat.completion.chunk", created: 1, model: "m", choices: [{ index: 0, delta: {}, finish_reason: "stop" }] }],
  anthropic: [
    { event: "content_block_stop", type: "content_block_stop", index: 0 },
    { event: "message_delta", type: "message_delta", delta: { stop_reason: "end_turn" }, usage: { output_tokens: 2 } },
    { event: "message_stop", type: "message_stop" },
  ],
  google: [{ candidates: [{ content: { role: "model", parts: [{ text: "" }] }, finishReason: "STOP" }] }],
};
const LAST = { openai: "data: [DONE]\n\n", anthropic: "", google: "" };

const failedOnce = new Set();

async function answer(request, response) {
  const [, how, ...rest] = request.url.split("/");
  const path = rest.join("/").split("?")[0];
  const kind = kindOf(path);
  let body = "";
  for await (const part of request) body += part;
  const isStream = /"stream": ?true/.test(body) || /streamGenerateContent/.test(path);
  const send = (status, type, text) => {
    response.writeHead(status, { "content-type": type, "content-length": Buffer.byteLength(text), "retry-after-ms": "1" });
    response.end(text);
  };
  const json = (status, value) => send(status, "application/json", JSON.stringify(value));
  const error = kind === "openai" ? OUTAGES.openai : (OUTAGES[kind] ?? {});
  if (how === "quota") return json(429, { error: { message: "You exceeded your current quota", type: "insufficient_quota", code: "insufficient_quota" } });
  if (how === "once") {
    const id = rest.shift();
    if (!failedOnce.has(id)) {
      failedOnce.add(id);
      return json(503, { error: { message: "try again" } });
    }
  } else if (/^\d+$/.test(how)) return json(Number(how), { error: { message: "answered so", type: "some_type", code: "some_code" } });
  else if (how === "reset") return request.socket.resetAndDestroy();
  else if (how === "silent") return undefined;
  else if (how === "error-body") return json(200, kind === "anthropic" ? { type: "error", error } : { error });
  else if (how === "cut") {
    const text = isStream ? sse(BEGINNING[kind]) : JSON.stringify(WHOLE[kind]).slice(0, -5);
    response.writeHead(200, { "content-type": isStream ? "text/event-stream" : "application/json", ...(isStream ? {} : { "content-length": text.length + 5 }) });
    response.write(text);
    return setTimeout(() => request.socket.destroy(), 20);
  } else if (how === "error-event") {
    const failed = kind === "anthropic" ? { event: "error", type: "error", error } : { error };
    const text = sse([...(BEGINNING[kind] ?? []), failed]);
    return send(200, "text/event-stream", text + (kind === "openai" ? LAST.openai : ""));
  } else if (how === "slow") await new Promise((resolve) => setTimeout(resolve, 50));
  if (rest.at(-1) === "mcp") return mcp(request, response, body);
  if (!isStream) return json(200, WHOLE[kind] ?? { answer: TEXT });
  response.writeHead(200, { "content-type": "text/event-stream" });
  response.write(sse(BEGINNING[kind]));
  if (how === "slow") await new Promise((resolve) => setTimeout(resolve, 50));
  if (how === "no-end") return response.end();
  return response.end(sse(END[kind]) + LAST[kind]);
}

/** As an MCP server without tools. */
function mcp(request, response, body) {
  if (request.method !== "POST") return response.writeHead(405).end();
  const { id } = JSON.parse(body);
  if (id === undefined) return response.writeHead(202).end();
  const result = { protocolVersion: "2025-06-18", capabilities: { tools: {} }, serverInfo: { name: "s", version: "1" }, tools: [] };
  const text = JSON.stringify({ jsonrpc: "2.0", id, result });
  return response.writeHead(200, { "content-type": "application/json" }).end(text);
}

/** A WebSocket that greets, and is closed with the code that its path names. */
function upgrade(request, socket) {
  const [, how] = request.url.split("/");
  if (how === "refusing") return socket.end("HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n");
  const key = createHash("sha1").update(`${request.headers["sec-websocket-key"]}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest("base64");
  socket.write(`HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-accept: ${key}\r\n\r\n`);
  socket.on("error", () => {});
  if (how === "cut") return setTimeout(() => socket.destroy(), 20);
  const code = Buffer.alloc(2);
  code.writeUInt16BE(Number(how) || 1000);
  const text = Buffer.from(TEXT);
  return socket.end(Buffer.concat([Buffer.from([0x81, text.length]), text, Buffer.from([0x88, 2]), code]));
}

/** gRPC: a method named after a status answers it; `reset` closes the stream, `silent` does not answer. */
function grpc(stream, headers) {
  const [, , how] = String(headers[":path"]).split("/");
  stream.on("error", () => {});
  if (how === "reset") return stream.close(http2.constants.NGHTTP2_INTERNAL_ERROR);
  if (how === "silent") return undefined;
  if (/^\d+$/.test(how) && how !== "0") {
    stream.respond({ ":status": 200, "content-type": "application/grpc", "grpc-status": how, "grpc-message": "so" }, { endStream: true });
    return undefined;
  }
  stream.respond({ ":status": 200, "content-type": "application/grpc" }, { waitForTrailers: true });
  stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": "0" }));
  return stream.end(Buffer.from([0, 0, 0, 0, 0]));
}

/** Ends each connection after the first bytes that come. */
const ending = net.createServer((socket) => {
  socket.on("error", () => {});
  socket.once("data", () => socket.end());
});

const listening = (server) => new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(server.address().port)));
const web = createServer((request, response) => answer(request, response).catch(() => {})).on("upgrade", upgrade);
const streams = http2.createServer().on("stream", grpc).on("session", (session) => session.on("error", () => {}));
const unused = net.createServer();
const ports = { web: await listening(web), grpc: await listening(streams), ending: await listening(ending), refused: await listening(unused) };
unused.close();
process.stdin.resume().on("end", () => process.exit(0));
console.log(JSON.stringify(ports));
