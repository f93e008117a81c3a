import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, test } from "vitest";
import { serviceClient } from "../src/index.js";

test("requests and streams have the key and the tenant, and the address may end with a slash", async () => {
  const seen: unknown[] = [];
  const server = createServer(({ url, headers }, response) => {
    seen.push([url, headers.authorization, headers["evolverpc-tenant"]]);
    const isStream = url?.endsWith("/stream");
    response.writeHead(200, { "Content-Type": isStream ? "text/event-stream" : "application/json" });
    response.end(isStream ? "event: end\ndata: {}\n\n" : "{}");
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  const client = serviceClient({ url, key: "key", tenant: "ours" });
  await client.GET("/programs/active");
  for await (const _ of client.follow("a/b"));
  server.close();
  const sent = ["Bearer key", "ours"];
  expect(seen).toEqual([
    ["/programs/active", ...sent],
    ["/job/a%2Fb/stream", ...sent],
  ]);
});
