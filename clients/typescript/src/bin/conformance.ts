#!/usr/bin/env node
/** `evolverpc-conformance [--stdio]` serves the conformance program, over HTTP unless told otherwise. */

import { parseArgs } from "node:util";
import { conformanceProgram } from "../conformance.js";
import { serve } from "../serve.js";
import { serveStdio } from "../stdio.js";

const { values } = parseArgs({
  options: {
    stdio: { type: "boolean", default: false },
    host: { type: "string" },
    port: { type: "string" },
    "token-file": { type: "string" },
    "example-timeout-s": { type: "string" },
    "max-concurrency": { type: "string" },
    "max-queue": { type: "string" },
    "drain-s": { type: "string" },
    json: { type: "boolean" },
  },
});

/** A number given as text; undefined where it was not given. */
function number(name: string, text: string | undefined): Record<string, number> {
  if (text === undefined) return {};
  const value = Number(text);
  if (!Number.isFinite(value)) throw new TypeError(`${name} must be a number, not ${text}`);
  return { [name]: value };
}

const limits = {
  ...number("exampleTimeoutS", values["example-timeout-s"]),
  ...number("maxConcurrency", values["max-concurrency"]),
  ...number("maxQueue", values["max-queue"]),
};

if (values.stdio) await serveStdio(conformanceProgram, limits);
await serve(conformanceProgram, {
  ...limits,
  ...number("port", values.port),
  ...number("drainS", values["drain-s"]),
  ...(values.host === undefined ? {} : { host: values.host }),
  ...(values["token-file"] === undefined ? {} : { tokenFile: values["token-file"] }),
  ...(values.json === undefined ? {} : { json: values.json }),
});
