/** Starts the program as a process behind `gepa-server --command`. */

import { serveStdio } from "evolverpc";
import { repeats } from "./repeats.js";

await serveStdio(repeats);
