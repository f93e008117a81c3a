/** What the run does at this moment, what it has used, and what fails. */

import { About } from "../panels/about";
import { Activity } from "../panels/activity";
import { Budget } from "../panels/budget";
import { Endpoints } from "../panels/endpoints";
import { Events } from "../panels/events";
import { Failures, failuresFirst } from "../panels/failures";
import { Result } from "../panels/result";
import { Steers } from "../panels/steers";
import { Warnings } from "../panels/warnings";
import { Stage } from "./result";
import type { ViewProps } from "./run";

export function NowView({ view, api }: ViewProps) {
  const { run, spending, now } = view.latest;
  return (
    <>
      <p class="about">
        {run?.driven ? "What the run does at this moment, what it has found and used," : "What the run found and used,"}{" "}
        and what fails.
      </p>
      <div class="row panels">
        {failuresFirst(view) && <Failures view={view} />}
        <Result view={view} api={api} />
        {run?.driven && now !== undefined && <Activity view={view} now={now} />}
        <Budget view={view} />
        {now !== undefined && now.endpoints.length > 0 && <Endpoints now={now} />}
        {!failuresFirst(view) && <Failures view={view} />}
        <Warnings view={view} />
        {spending !== undefined && spending.table.rows.length > 0 && <Stage table={spending.table} />}
        <Steers view={view} />
        {run !== undefined && <About view={view} />}
        <Events view={view} api={api} />
      </div>
    </>
  );
}
