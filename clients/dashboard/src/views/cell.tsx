/** One cell of the heat map: what the program got and returned, its feedback, its steps and its log. */

import { useEffect, useRef, useState } from "preact/hooks";
import type { Cell, RowResult, StepShown } from "../generated/answers";
import type { Excerpt } from "../generated/events";
import { useLoaded, useWhole } from "../loading";
import { candidateName, count, score, took } from "../parts/format";
import { scoredRow } from "../parts/row-name";
import { Shown } from "../parts/shown";
import { Block, Inline } from "../parts/text";
import { href, refine } from "../route";
import type { View } from "../state/view";

interface Props {
  readonly view: View;
  readonly api: string;
  readonly candidate: number;
  readonly row: number;
}

export function CellDetails({ view, api, candidate, row }: Props) {
  const panel = useRef<HTMLElement>(null);
  const heading = useRef<HTMLHeadingElement>(null);
  const id = view.rows[row] ?? null;
  const path = `${api}/cell?candidate=${candidate}&row=${row}`;
  const answer = useLoaded<Cell>(id === null ? null : path);
  const value = view.candidates.find(({ index }) => index === candidate)?.scores[row];
  const opener = useRef<HTMLElement | null>(null);
  useEffect(() => {
    const focused = document.activeElement;
    if (focused instanceof HTMLElement && !panel.current?.contains(focused)) opener.current = focused;
    heading.current?.focus({ preventScroll: true });
    panel.current?.scrollIntoView({ block: "nearest" });
  }, [candidate, row]);
  const close = () => {
    refine({ candidate: null, row: null });
    if (opener.current?.isConnected) opener.current.focus();
    else document.querySelector<HTMLElement>(".map")?.focus();
  };
  return (
    <section
      class="panel cell"
      aria-labelledby="cell-heading"
      ref={panel}
      onKeyDown={(event) => {
        if (event.key === "Escape") close();
      }}
    >
      <div class="row tools">
        <h2 id="cell-heading" ref={heading} tabIndex={-1}>
          <Inline text={scoredRow(view, row)} length={80} /> with{" "}
          <a href={href("text", { candidate })}>{candidateName(candidate)}</a>: {score(value)}
        </h2>
        <button type="button" onClick={close}>
          Close
        </button>
      </div>
      <Shown loaded={answer}>
        {(cell) => (
          <>
            <div class="pair">
              <Part name="Input" value={cell.input} more={`${path}&part=input`} />
              {cell.result === null ? <p>No result is recorded.</p> : <Result result={cell.result} path={path} />}
            </div>
            <p class="quiet">{took(cell)}</p>
            <h3>Steps</h3>
            {cell.steps.length > 0 ? (
              <Steps steps={cell.steps} />
            ) : (
              <Inline
                as="p"
                class="quiet"
                text={cell.no_steps ?? "The program recorded no steps of this example."}
                length={300}
              />
            )}
          </>
        )}
      </Shown>
    </section>
  );
}

/** `path`: what asks for the whole of a part, without the part's name; null if nothing does. */
export function Result({ result, path = null }: { result: RowResult; path?: string | null }) {
  const more = (part: string) => (path === null ? null : `${path}&part=${part}`);
  return (
    <>
      {result.status !== "ok" && (
        <p class="bad">
          Status: <Inline text={result.status} />
        </p>
      )}
      {result.output === null && result.status === "ok" ? (
        <div>
          <h3>Output</h3>
          <p class="quiet">none</p>
        </div>
      ) : (
        <Part name="Output" value={result.output} more={more("output")} />
      )}
      <Part name="Feedback" value={result.feedback} more={more("feedback")} />
      <Part name="Feedback on components" value={result.component_feedback} more={more("component_feedback")} />
      <Part name="Error" value={result.error} />
      <Part name="Log" value={result.log} more={more("log")} />
    </>
  );
}

/** A part of a result. `more`: asks for the whole of one that is cut. */
export function Part({ name, value, more = null }: { name: string; value: Excerpt | null; more?: string | null }) {
  const [wanted, setWanted] = useState(false);
  const answer = useWhole(wanted ? more : null);
  if (value === null) return null;
  const shown = answer.value ?? value;
  return (
    <div>
      <Inline as="h3" text={name} />
      <Block text={shown.text} omitted={shown.omitted} label={name} />
      {value.omitted > 0 && more !== null && !wanted && (
        <button type="button" onClick={() => setWanted(true)}>
          Load the other {count(value.omitted)} characters
        </button>
      )}
      <Shown loaded={answer} />
    </div>
  );
}

function Steps({ steps }: { steps: readonly StepShown[] }) {
  return (
    <ol class="steps">
      {steps.map((step, at) => (
        <li key={at}>
          <details>
            <summary>
              <Inline as="strong" text={step.name} length={80} />
              {step.component !== null && (
                <>
                  {" "}
                  with the text of <Inline text={step.component} length={60} />
                </>
              )}
              <span class="quiet"> {took(step)}</span>
              {step.error !== null && (
                <span class="bad">
                  , failed: <Inline text={step.error.text} length={80} />
                </span>
              )}
            </summary>
            <Part name="Input" value={step.input} />
            <Part name="Output" value={step.output} />
            <Part name="Error" value={step.error} />
          </details>
          {step.steps.length > 0 && <Steps steps={step.steps} />}
        </li>
      ))}
    </ol>
  );
}
