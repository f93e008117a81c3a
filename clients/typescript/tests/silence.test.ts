// How long a connection may keep a place without saying anything; the limit here is far below the real one.
import { type AddressInfo, connect, type Socket } from "node:net";
import { text } from "node:stream/consumers";
import { beforeEach, expect, it, onTestFinished } from "vitest";
import { storeCarrier } from "../src/carriers.js";
import { Door } from "../src/door.js";
import { Endpoint } from "../src/endpoint.js";
import { listening } from "../src/node-http.js";
import { programOf } from "./support.js";

const SILENCE_MS = 150;
const HEAD = ["POST /rpc HTTP/1.1", "host: localhost", "authorization: Bearer t", "content-type: application/json"];
const PLACE = { host: "127.0.0.1", port: 0, allowedHosts: [] };

let port: number;
beforeEach(async () => {
  const slow = programOf({ run: () => new Promise((resolve) => setTimeout(resolve, 6 * SILENCE_MS, "at last")) });
  const endpoint = await Endpoint.create(slow, {}, storeCarrier(undefined));
  const options = { token: "t", basePath: "", allowsHost: () => true, allowedOrigins: [] };
  const server = await listening(new Door(async () => endpoint, options), PLACE, SILENCE_MS);
  port = (server.address() as AddressInfo).port;
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
});

function connected(said: string): Socket {
  const socket = connect(port, "127.0.0.1");
  socket.write(said);
  return socket;
}

it.each([
  ["says nothing", ""],
  ["stops within the head", HEAD.join("\r\n")],
  ["stops within the body", [...HEAD, "content-length: 100", "", '{"jsonrpc":'].join("\r\n")],
  ["stops within a chunk", [...HEAD, "transfer-encoding: chunked", "", "ff", "{"].join("\r\n")],
  ["is kept for a next request", "GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"],
])("a connection that %s is closed", async (_, said) => {
  const socket = connected(said);
  socket.on("error", () => {}); // a reset is as good
  socket.resume();
  await new Promise((resolve) => socket.on("close", resolve));
});

it("neither an answer that takes long nor a body that keeps coming is cut", async () => {
  const params = { candidate: { rules: "" }, batch: [{ id: "a", data: 1 }] };
  const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "evaluate", params });
  const socket = connected([...HEAD, "connection: close", `content-length: ${body.length}`, "", ""].join("\r\n"));
  const half = body.length / 2;
  for (const part of [body.slice(0, half), body.slice(half)]) {
    await new Promise((resolve) => setTimeout(resolve, (2 / 3) * SILENCE_MS));
    socket.write(part);
  }
  expect(await text(socket)).toContain("at last");
});
