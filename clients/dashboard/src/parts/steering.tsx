/**
 * What a user may ask of a running run. Each request becomes an entry of its journal. Hints are for a reflection model:
 * without one no prompt shows them.
 */

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import type { View } from "../state/view";
import { RequestButton, useAction } from "./action";
import { Field, type Given, LimitFields, stated } from "./form";
import { candidateName, count, score } from "./format";
import { ProblemNotice } from "./problem";

/** An action of gepa_client/journal/steer_entries.py. */
type Action = { readonly kind: string } & Readonly<Record<string, unknown>>;

interface Props {
  readonly view: View;
  readonly api: string;
}

export function Steering({ view, api }: Props) {
  const [isAsked, setAsked] = useState(false);
  const { send, problem } = useAction();
  const run = view.latest.run;
  if (!run?.driven || view.latest.now?.lost) {
    return (
      <div class="row controls">
        <span class="quiet">Not running.</span>
      </div>
    );
  }
  const path = `${api}/steer`;
  const request = { path, onDone: () => setAsked(true) };
  return (
    <fieldset class="row controls" aria-label="Steering">
      <button
        type="button"
        onClick={async () => {
          if ((await send("POST", path, { kind: "pause" })) !== null) setAsked(true);
        }}
      >
        Pause
      </button>
      <Request {...request} title="Cancel the run" submit="Cancel the run" action={() => ({ kind: "cancel" })}>
        <p>
          The run stops once the examples in flight have ended, and is marked as cancelled. Its results are kept, and it
          can be resumed later.
        </p>
      </Request>
      <Request
        {...request}
        title="Raise the budget"
        submit="Set the limits"
        action={(given) => ({ kind: "budget", ...stated(given) })}
      >
        <LimitFields hints={run.budget === null ? {} : { max_metric_calls: `${count(run.budget)} now` }} />
      </Request>
      <Proposal view={view} {...request} />
      <Request
        {...request}
        title="Pin or drop a candidate"
        submit="Pin"
        others={{ drop: "Drop", unpin: "Unpin" }}
        action={({ candidate }, pressed) =>
          pressed === "unpin" ? { kind: pressed } : { kind: pressed || "pin", candidate: Number(candidate) }
        }
      >
        <p>A pinned candidate is the parent of every proposal; a dropped one is never a parent again, nor the best.</p>
        <CandidateField view={view} defaultValue={`${view.best ?? 0}`} />
      </Request>
      {run.reflection_model !== null && (
        <Request
          {...request}
          title="Hint for reflection"
          submit="Add the hint"
          others={{ clear_hints: "Clear all hints" }}
          action={(given, pressed) => (pressed ? { kind: pressed } : { kind: "hint", ...stated(given) })}
        >
          <p>Prompts of reflection show it from now on.</p>
          <Field label="Hint" name="text" long required />
          <Field label="For the next proposals (empty: all)" name="proposals" type="number" min={1} />
        </Request>
      )}
      {isAsked && (
        <span role="status" class="quiet">
          Asked; it takes effect between two iterations.
        </span>
      )}
      <ProblemNotice problem={problem} />
    </fieldset>
  );
}

interface RequestProps {
  readonly path: string;
  readonly onDone: () => void;
  readonly title: string;
  readonly submit: string;
  readonly others?: Readonly<Record<string, string>>;
  readonly action: (given: Given, pressed: string) => Action;
  readonly children: ComponentChildren;
}

function Request({ path, action, ...request }: RequestProps) {
  return <RequestButton {...request} asked={(given, pressed) => ["POST", path, action(given, pressed)]} />;
}

function CandidateField({ view, ...field }: { view: View } & Partial<Parameters<typeof Field>[0]>) {
  const options = view.candidates.map(
    (each) => [`${each.index}`, `${candidateName(each.index)}: ${score(each.score)}`] as const,
  );
  return <Field label="Candidate" name="candidate" options={options} {...field} />;
}

function Proposal({ view, ...request }: { view: View } & Pick<RequestProps, "path" | "onDone">) {
  const components = view.latest.run?.components ?? [];
  const [parent, setParent] = useState(view.best ?? 0);
  const [component, setComponent] = useState(components[0] ?? "");
  const before = view.candidates.find(({ index }) => index === parent)?.texts[component];
  return (
    <Request
      {...request}
      title="Propose a text"
      submit="Propose it"
      action={({ text }) => ({ kind: "propose", texts: { [component]: text }, parent })}
    >
      <p>It is evaluated as any proposal, in place of the parent's text.</p>
      <CandidateField
        view={view}
        value={`${parent}`}
        onChange={(event) => setParent(Number(event.currentTarget.value))}
      />
      <Field
        label="Component"
        name="component"
        options={components.map((name) => [name, name])}
        value={component}
        onChange={(event) => setComponent(event.currentTarget.value)}
      />
      <Field label="Text" name="text" long required defaultValue={before?.omitted ? "" : (before?.text ?? "")} />
    </Request>
  );
}
