// The listen address from environment variables.
import { renameSync } from "node:fs";
import { request } from "node:http";
import { type AddressInfo, createServer, type Server } from "node:net";
import { join } from "node:path";
import { expect, it, onTestFinished } from "vitest";
import { listenAddressOf, urlOf } from "../src/server/node-http.js";
import type { RunningServer } from "../src/server/serve.js";
import { type Child, nextMessage, started } from "./processes.js";
import { call, evaluate, programOf, raw, served, temporaryFolder } from "./support.js";

const ENVIRONMENT = { GEPA_LISTEN: "fd:3", GEPA_TOKEN: "t" };

/** A listening socket's descriptor, open until the test is over or `server` is closed. */
async function listened(server: Server, where: object): Promise<number> {
  await new Promise<void>((resolve) => server.listen(where, resolve));
  onTestFinished(() => void server.close());
  return (server as unknown as { _handle: { fd: number } })._handle.fd;
}

function onDescriptor(descriptor: number): Child {
  return started("tests/programs/environment-listener.ts", [], ENVIRONMENT, descriptor);
}

function overUnix(socketPath: string, host: string): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    const sent = request({ socketPath, path: "/health", headers: { host } }, (response) => {
      response.resume();
      resolve(response.statusCode);
    });
    sent.on("error", reject);
    sent.end();
  });
}

it("an inherited socket is served, and neither it nor the variables reach the program", async () => {
  const parent = createServer();
  const child = onDescriptor(await listened(parent, { host: "127.0.0.1", port: 0 }));
  const { port } = parent.address() as AddressInfo;
  parent.close(); // what comes from now on is the child's
  const server = { ...(await nextMessage(child)), token: "t" } as RunningServer;
  expect(server.url).toBe(`http://127.0.0.1:${port}/rpc`);
  const [result] = await evaluate(server, [1]);
  expect(result.output).toEqual({ variables: [], inherited: "no" });
});

it("over a unix socket any of this machine's own names is an accepted `Host`", async () => {
  const folder = temporaryFolder();
  const parent = createServer();
  const child = onDescriptor(await listened(parent, { path: join(folder, "parent") }));
  renameSync(join(folder, "parent"), join(folder, "socket")); // closing removes it by the name it was made by
  parent.close();
  const { url } = await nextMessage(child);
  expect(url).toMatch(/^http\+unix:\/\/.*\/rpc$/);
  expect(await overUnix(join(folder, "socket"), "localhost")).toBe(200);
  expect(await overUnix(join(folder, "socket"), "127.0.0.1:80")).toBe(200);
  expect(await overUnix(join(folder, "socket"), "attacker.example")).toBe(403);
});

it("a socket that other machines can reach needs a given token", async () => {
  const descriptor = await listened(createServer(), { host: "0.0.0.0", port: 0 });
  const child = started("tests/programs/environment-listener.ts", [], { GEPA_LISTEN: "fd:3" }, descriptor);
  expect(await child.ended).toBe(1);
  expect(child.stderr()).toContain("a server on 0.0.0.0 needs a token of yours");
});

it("listens at the address and accepts the hosts that the environment names", async () => {
  process.env.GEPA_LISTEN = "127.0.0.1:0";
  process.env.GEPA_ALLOWED_HOSTS = "box.example, other.example";
  const server = await served(programOf(), { allowedHosts: ["mine.example"] });
  expect(server.url).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/rpc$/);
  expect([process.env.GEPA_LISTEN, process.env.GEPA_ALLOWED_HOSTS]).toEqual([undefined, undefined]);
  const status = async (host: string): Promise<number> =>
    (await raw(server, { path: "/health", method: "GET", headers: { host } })).status;
  expect(await Promise.all(["box.example", "other.example:80", "mine.example", "x.example"].map(status))).toEqual([
    200, 200, 200, 403,
  ]);
  expect((await call(server, "discover")).result).toBeDefined();
});

it.each([
  ["fd:3", { port: 1 }, /GEPA_LISTEN is set, and `host` or `port` is given/],
  ["127.0.0.1:0", { host: "127.0.0.1" }, /remove one of them/],
  ["fd:x", {}, /HOST:PORT/],
  ["127.0.0.1", {}, /HOST:PORT/],
  ["127.0.0.1:65536", {}, /HOST:PORT/],
  ["::1:80", {}, /HOST:PORT/],
  ["", {}, /HOST:PORT/],
  ["fd:999999", {}, /cannot listen on descriptor 999999/],
])("refuses %j with %j", async (where, options, message) => {
  process.env.GEPA_LISTEN = where;
  await expect(served(programOf(), options)).rejects.toThrow(message);
});

it("an address in brackets is IPv6", () => {
  process.env.GEPA_LISTEN = "[::1]:80";
  const address = listenAddressOf({});
  expect(address).toMatchObject({ host: "::1", port: 80 });
  const server = { address: () => ({ address: "::1", port: 80 }) } as never;
  expect(urlOf(server, address)).toBe("http://[::1]:80/rpc");
});
