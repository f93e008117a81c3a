// A gRPC server whose answer is named by the method that is called: a status, or how it ends the stream.
import { once } from "node:events";
import http2 from "node:http2";

function answer(stream, headers) {
  const [, , encoded] = headers[":path"].split("/");
  const how = decodeURIComponent(encoded);
  stream.on("error", () => {});
  if (how === "silent stream") return;
  if (how === "reset stream") stream.close(http2.constants.NGHTTP2_INTERNAL_ERROR);
  else {
    stream.respond({ ":status": 200, "content-type": "application/grpc" }, { waitForTrailers: true });
    stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": how, "grpc-message": "so" }));
    stream.end(how === "0" ? Buffer.alloc(5) : undefined);
  }
}

const server = http2.createServer().on("stream", answer).on("session", (session) => session.on("error", () => {}));
await once(server.listen(0, "127.0.0.1"), "listening");
server.unref();
export const grpcAddress = `127.0.0.1:${server.address().port}`;
