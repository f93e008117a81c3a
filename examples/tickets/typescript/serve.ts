/** Starts the program: a server of its own over HTTP, or with `--stdio` a process behind `evolverpc serve --command`. */

import { serve, serveStdio } from "evolverpc";
import { tickets } from "./tickets.js";

await (process.argv.includes("--stdio") ? serveStdio(tickets) : serve(tickets));
