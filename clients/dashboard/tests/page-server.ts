/** A server of the built page on loopback that answers from a sample run, with the headers of the real one. */

import { readFileSync } from "node:fs";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import type { PageEvent } from "../src/generated/events";
import type { Sample } from "./sample-run";

const DIST = fileURLToPath(new URL("../../../gepa_client/page/dist/", import.meta.url));
const TYPES: Record<string, string> = { html: "text/html", js: "text/javascript", css: "text/css" };
const KEY = "the key of this page";
const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

export class PageServer {
  sample: Sample = { events: [], answers: {} };
  /** Bodies of requests to steer. */
  readonly steered: unknown[] = [];
  private readonly streams = new Set<ServerResponse>();
  private readonly server = createServer((request, response) => {
    const path = request.url ?? "/";
    response.setHeader("content-security-policy", POLICY);
    response.setHeader("cache-control", "no-store");
    if (path.endsWith("/events")) {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(stream(this.sample.events));
      this.streams.add(response);
      response.on("close", () => this.streams.delete(response));
    } else if (request.method === "POST") {
      let body = "";
      request.on("data", (part) => {
        body += part;
      });
      request.on("end", () => {
        const keyed = request.headers["x-evolverpc-key"] === KEY;
        if (path.endsWith("/steer") && keyed) this.steered.push(JSON.parse(body));
        const refused = path.endsWith("/steer") && !keyed;
        response.writeHead(refused ? 403 : 200, { "content-type": "application/json" });
        response.end(JSON.stringify(refused ? { error: "the key is missing" } : { key: KEY }));
      });
    } else if (path.startsWith("/api/")) {
      const found = path in this.sample.answers;
      response.writeHead(found ? 200 : 404, { "content-type": "application/json" });
      response.end(JSON.stringify(found ? this.sample.answers[path] : { error: "it is not recorded" }));
    } else {
      const name = path === "/" || path.startsWith("/?") ? "index.html" : path.replace("/assets/", "");
      const type = TYPES[name.split(".").at(-1) ?? ""];
      if (type === undefined) response.writeHead(404).end();
      else {
        response.writeHead(200, { "content-type": `${type}; charset=utf-8` });
        response.end(readFileSync(DIST + name));
      }
    }
  });

  async start(): Promise<string> {
    await new Promise<void>((resolve) => this.server.listen(0, "127.0.0.1", resolve));
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  send(events: readonly PageEvent[]): void {
    for (const response of this.streams) response.write(stream(events));
  }

  /** Announce to the pages that everything comes again, with a command by which a test knows that it has come. */
  reset(command: string): void {
    const events = this.sample.events.map((event) =>
      event.event === "run" ? { ...event, commands: [...event.commands, { command, what: "" }] } : event,
    );
    for (const response of this.streams) response.write(`event: reset\ndata: {}\n\n${stream(events)}`);
  }

  /** End all streams, as a server that is killed does. */
  cut(): void {
    for (const response of this.streams) response.destroy();
  }

  async close(): Promise<void> {
    this.cut();
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }
}

function stream(events: readonly PageEvent[]): string {
  return events.map((event, id) => `id: e-${id}\ndata: ${JSON.stringify(event)}\n\n`).join("");
}
