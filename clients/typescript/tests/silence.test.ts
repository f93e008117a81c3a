// The idle limit of connections; it is far lower here than the real one.
import { type AddressInfo, connect, type Socket } from "node:net";
import { text } from "node:stream/consumers";
import { beforeEach, expect, it, onTestFinished } from "vitest";
import { readOptions } from "../src/base/configuration.js";
import { ENDPOINT_OPTIONS } from "../src/base/options.js";
import { Dispatcher } from "../src/server/dispatcher.js";
import { HttpRouter, httpTransport } from "../src/server/handler.js";
import { listen } from "../src/server/node-http.js";
import { ONE, programOf } from "./support.js";

const SILENCE_MS = 150;
const HEAD = ["POST /rpc HTTP/1.1", "host: localhost", "authorization: Bearer t", "content-type: application/json"];
const ADDRESS = { host: "127.0.0.1", port: 0, allowedHosts: [] };

let port: number;
beforeEach(async () => {
  const slow = programOf({ run: () => new Promise((resolve) => setTimeout(resolve, 6 * SILENCE_MS, "at last")) });
  const endpoint = await Dispatcher.create(slow, readOptions({}, ENDPOINT_OPTIONS), httpTransport(undefined));
  const options = { token: "t", basePath: "", allowsHost: () => true, allowedOrigins: [] };
  const server = await listen(new HttpRouter(async () => endpoint, options), ADDRESS, SILENCE_MS);
  port = (server.address() as AddressInfo).port;
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
});

function connected(sent: string): Socket {
  const socket = connect(port, "127.0.0.1");
  socket.write(sent);
  return socket;
}

it.each([
  ["sends nothing", ""],
  ["stops within the head", HEAD.join("\r\n")],
  ["stops within the body", [...HEAD, "content-length: 100", "", '{"jsonrpc":'].join("\r\n")],
  ["stops within a chunk", [...HEAD, "transfer-encoding: chunked", "", "ff", "{"].join("\r\n")],
  ["is kept for a next request", "GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"],
])("a connection that %s is closed", async (_, sent) => {
  const socket = connected(sent);
  socket.on("error", () => {}); // a reset is as good
  socket.resume();
  await new Promise((resolve) => socket.on("close", resolve));
});

it("neither a slow response nor a body that keeps arriving is cut", async () => {
  const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "evaluate", params: ONE });
  const socket = connected([...HEAD, "connection: close", `content-length: ${body.length}`, "", ""].join("\r\n"));
  const half = body.length / 2;
  for (const part of [body.slice(0, half), body.slice(half)]) {
    await new Promise((resolve) => setTimeout(resolve, (2 / 3) * SILENCE_MS));
    socket.write(part);
  }
  expect(await text(socket)).toContain("at last");
});
