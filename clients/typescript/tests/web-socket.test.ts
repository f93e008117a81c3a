// How the WebSocket of an example was closed decides whether a failure is its own.
import { createServer, request } from "node:http";
import { expect, it } from "vitest";
import { evaluate, hostOf, programOf, served } from "./support.js";

it.each<[string, number[], string]>([
  ["with 1011", [0x88, 2, 0x03, 0xf3], "infra_error"],
  ["with 1000 after a message", [0x82, 126, 0x01, 0x00, ...Array(256).fill(0x88), 0x88, 2, 0x03, 0xe8], "ok"],
  ["without a frame", [], "infra_error"],
])("an example whose connection to a model is closed %s is judged by that", async (_, frames, expected) => {
  const server = createServer().on("upgrade", (_request, socket) => {
    socket.write("HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\n");
    socket.end(Buffer.from(frames));
  });
  const host = await hostOf(server);
  const run = () =>
    new Promise<void>((resolve) => {
      const sent = request(`http://${host}/live`, { headers: { connection: "Upgrade", upgrade: "websocket" } });
      sent.on("upgrade", (_response, socket, head) => {
        socket.unshift(head);
        socket.on("close", () => resolve()).resume();
      });
      sent.end();
    });
  const [result] = await evaluate(await served(programOf({ run }), { modelHosts: [host] }), [1]);
  server.close();
  expect(result.status).toBe(expected);
});
