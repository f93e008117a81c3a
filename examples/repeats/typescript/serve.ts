/** Starts the program as a process behind `evolverpc serve --command`. */

import { serveStdio } from "evolverpc";
import { repeats } from "./repeats.js";

await serveStdio(repeats);
