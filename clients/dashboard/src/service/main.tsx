/** Start the page of the service. */

import "../page.css";
import "uplot/dist/uPlot.min.css";
import "./service.css";
import { render } from "preact";
import { App } from "./app";

const root = document.getElementById("page");
if (root === null) throw new Error("the page has no element #page");
render(<App />, root);
