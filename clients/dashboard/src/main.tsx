/** Start the page: with the data inside it, or with those of the server that serves it. */

import "./page.css";
import "uplot/dist/uPlot.min.css";
import { render } from "preact";
import { App } from "./app";
import { embedded } from "./embedded";

const root = document.getElementById("page");
if (root === null) throw new Error("the page has no element #page");
render(<App data={embedded()} />, root);
