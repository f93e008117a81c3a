import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, expect, test } from "vitest";
import { type JobEvent, ServiceProblem, serviceClient } from "../src/index.js";

let server: Server | undefined;

afterEach(async () => {
  await new Promise((resolve) => (server ? server.close(resolve) : resolve(undefined)));
  server = undefined;
});

async function served(answer: (request: IncomingMessage, response: ServerResponse) => void): Promise<string> {
  const made = createServer(answer);
  server = made;
  await new Promise<void>((resolve) => made.listen(0, "127.0.0.1", resolve));
  return `http://127.0.0.1:${(made.address() as AddressInfo).port}`;
}

async function all(url: string): Promise<JobEvent[]> {
  const found: JobEvent[] = [];
  for await (const event of serviceClient({ url, key: "key" }).follow("job_1", { retryMs: 1 })) found.push(event);
  return found;
}

test("a stream that is lost many times is followed as long as events come between", async () => {
  let requests = 0;
  const url = await served((_request, response) => {
    requests += 1;
    response.writeHead(requests % 2 ? 503 : 200, { "Content-Type": "text/event-stream" });
    const event = requests < 80 ? 'data: {"event":"job"}' : "event: end\ndata: {}";
    response.end(requests % 2 ? "{}" : `id: a-${requests}\n${event}\n\n`);
  });
  expect(await all(url)).toHaveLength(39);
});

test("a stream that is cut continues after the last event that came", async () => {
  const seen: unknown[] = [];
  const url = await served((request, response) => {
    seen.push(request.headers["last-event-id"]);
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    const first =
      'id: a-0\ndata: {"event":"job","n":0}\n\n: nothing new\n\nid: a-1\ndata: {"event":"job","n":1}\n\nid: a-2\ndata: {"t';
    response.end(seen.length === 1 ? first : 'id: a-2\ndata: {"event":"job","n":2}\n\nevent: end\ndata: {}\n\n');
  });
  expect((await all(url)).map((event) => (event as unknown as { n: number }).n)).toEqual([0, 1, 2]);
  expect(seen).toEqual([undefined, "a-1"]);
});

test("events of another server come after a reset, and other kinds of messages are none", async () => {
  const url = await served((_request, response) => {
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    const sent = ["event: reset\ndata: {}", "event: ping\ndata: {}", 'data: {"event":"job"}', "event: end\ndata: {}"];
    response.end(sent.map((message) => `${message}\n\n`).join(""));
  });
  expect((await all(url)).map(({ event }) => event)).toEqual(["reset", "job"]);
});

test("a refused key is a problem, and is not tried again", async () => {
  let requests = 0;
  const url = await served((_request, response) => {
    requests += 1;
    response.writeHead(401, { "Content-Type": "application/problem+json" });
    response.end(JSON.stringify({ type: "urn:evolverpc:unauthorized", detail: "send a valid key" }));
  });
  await expect(all(url)).rejects.toThrow(ServiceProblem);
  expect(requests).toBe(1);
});

test.each([429, 502, 503, 504])("a service that is busy is tried again after %i", async (status) => {
  let requests = 0;
  const url = await served((_request, response) => {
    requests += 1;
    response.writeHead(requests === 1 ? status : 200, { "Content-Type": "text/event-stream" });
    response.end(requests === 1 ? "{}" : "event: end\ndata: {}\n\n");
  });
  expect(await all(url)).toEqual([]);
  expect(requests).toBe(2);
});

test("a follower that is aborted ends at once with the reason", async () => {
  const url = await served((_request, response) => {
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    response.write('data: {"event":"job"}\n\n');
  });
  const stop = new AbortController();
  const events = serviceClient({ url, key: "key" }).follow("job_1", { signal: stop.signal, retryMs: 60_000 });
  await events.next();
  stop.abort(new Error("enough"));
  await expect(events.next()).rejects.toThrow("enough");
});
