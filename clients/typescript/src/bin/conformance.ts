#!/usr/bin/env node
/** `evolverpc-conformance [--stdio]` serves the conformance program over HTTP, or over stdio. */

import { SetupError } from "../base/configuration.js";
import { CONFORMANCE_LIMITS, conformanceProgram } from "../program/conformance.js";
import { serve } from "../server/serve.js";
import { serveStdio } from "../server/stdio.js";
import { SERVE_USAGE, serveOptions } from "./serve-file.js";

const USAGE = `evolverpc-conformance [--stdio] ${SERVE_USAGE}`;

try {
  const { options, program, stdio, help } = serveOptions(process.argv.slice(2));
  if (program !== undefined) throw new SetupError(`${program} belongs to no flag`);
  if (help) console.log(USAGE);
  else if (stdio) await serveStdio(conformanceProgram, options);
  else await serve(conformanceProgram, { ...CONFORMANCE_LIMITS, ...options });
} catch (error) {
  if (!(error instanceof SetupError || (error instanceof TypeError && "code" in error))) throw error;
  console.error(`evolverpc-conformance: ${error.message}\n${USAGE}`);
  process.exit(2);
}
