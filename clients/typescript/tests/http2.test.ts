// What an example calls over HTTP/2, such as by gRPC, decides whether a failure is its own.
import http2 from "node:http2";
import { expect, it } from "vitest";
import { evaluate, hostOf, programOf, served } from "./support.js";

it.each([
  ["14", "infra_error"],
  ["0", "ok"],
])("an example whose last call of a model ended with the status %s of gRPC is %s", async (grpc, expected) => {
  const server = http2.createServer().on("stream", (stream) => {
    stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": grpc }));
    stream.respond({ ":status": 200, "content-type": "application/grpc" }, { waitForTrailers: true });
    stream.resume().end();
  });
  const host = await hostOf(server);
  const run = async () => {
    const session = http2.connect(`http://${host}`);
    const stream = session.request({ ":method": "POST", ":path": "/models/Ask" });
    await new Promise((resolve) => stream.on("close", resolve).resume().end("x"));
    session.close();
  };
  const [result] = await evaluate(await served(programOf({ run }), { modelHosts: [host] }), [1]);
  server.close();
  expect(result.status).toBe(expected);
});
