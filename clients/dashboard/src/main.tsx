/** Start the page: with the data inside it, or with those of the server that serves it. */

import "./page.css";
import "uplot/dist/uPlot.min.css";
import { render } from "preact";
import { App } from "./app";
import { embedded } from "./embedded";
import { href } from "./route";

const root = document.getElementById("page");
if (root === null) throw new Error("the page has no element #page");
const data = embedded();
if (data !== null && !location.hash) location.hash = href("result"); // a report begins with its result
render(<App data={data} />, root);
