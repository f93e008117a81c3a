/**
 * What a user may ask of a running run. Each request becomes an entry of its journal. Hints are for a reflection model:
 * without one no prompt shows them.
 */

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { post } from "../connection";
import type { View } from "../state/view";
import { DialogButton } from "./dialog";
import { Field, Form, type Given, LimitFields, stated } from "./form";
import { candidateName, count, score } from "./format";
import { type Problem, ProblemNotice } from "./problem";

/** An action of gepa_client/journal/steer_entries.py. */
type Action = { readonly kind: string } & Readonly<Record<string, unknown>>;

interface Props {
  readonly view: View;
  readonly api: string;
}

export function Steering({ view, api }: Props) {
  const [answer, setAnswer] = useState<Problem | string | null>(null);
  const run = view.latest.run;
  if (!run?.driven || view.latest.now?.lost) {
    return (
      <div class="row controls">
        <span class="quiet">Not running.</span>
      </div>
    );
  }
  const send = async (action: Action): Promise<Problem | null> => {
    setAnswer("Sending.");
    const problem = await steer(api, action);
    setAnswer(problem ?? "Asked; it takes effect between two iterations.");
    return problem;
  };
  return (
    <fieldset class="row controls" aria-label="Steering">
      <button type="button" onClick={() => send({ kind: "pause" })}>
        Pause
      </button>
      <Request
        title="Cancel the run"
        about="The run stops once the examples in flight have ended, and is marked as cancelled. Its results are kept, and it can be resumed later."
        submit="Cancel the run"
        send={() => send({ kind: "cancel" })}
      />
      <Request
        title="Raise the budget"
        submit="Set the limits"
        send={(given) => send({ kind: "budget", ...stated(given) })}
      >
        <LimitFields hints={run.budget === null ? {} : { max_metric_calls: `${count(run.budget)} now` }} />
      </Request>
      <Proposal view={view} send={send} />
      <Request
        title="Pin or drop a candidate"
        about="A pinned candidate is the parent of every proposal; a dropped one is never a parent again, nor the best."
        submit="Pin"
        others={{ drop: "Drop", unpin: "Unpin" }}
        send={({ candidate }, pressed) =>
          send(pressed === "unpin" ? { kind: pressed } : { kind: pressed || "pin", candidate: Number(candidate) })
        }
      >
        <CandidateField view={view} defaultValue={`${view.best ?? 0}`} />
      </Request>
      {run.reflection_model !== null && (
        <Request
          title="Hint for reflection"
          about="Prompts of reflection show it from now on."
          submit="Add the hint"
          others={{ clear_hints: "Clear all hints" }}
          send={(given, pressed) => send(pressed ? { kind: pressed } : { kind: "hint", ...stated(given) })}
        >
          <Field label="Hint" name="text" long required />
          <Field label="For the next proposals (empty: all)" name="proposals" type="number" min={1} />
        </Request>
      )}
      {typeof answer === "string" ? (
        <span role="status" class="quiet">
          {answer}
        </span>
      ) : (
        <ProblemNotice problem={answer} />
      )}
    </fieldset>
  );
}

function CandidateField({ view, ...field }: { view: View } & Partial<Parameters<typeof Field>[0]>) {
  const options = view.candidates.map(
    (each) => [`${each.index}`, `${candidateName(each.index)}: ${score(each.score)}`] as const,
  );
  return <Field label="Candidate" name="candidate" options={options} {...field} />;
}

function Proposal({ view, send }: { view: View; send: (action: Action) => Promise<Problem | null> }) {
  const components = view.latest.run?.components ?? [];
  const [parent, setParent] = useState(view.best ?? 0);
  const [component, setComponent] = useState(components[0] ?? "");
  const before = view.candidates.find(({ index }) => index === parent)?.texts[component];
  return (
    <Request
      title="Propose a text"
      about="It is evaluated as any proposal, in place of the parent's text."
      submit="Propose it"
      send={async ({ text }) =>
        text === before?.text.trim()
          ? problemOf("it is the parent's text")
          : send({ kind: "propose", texts: { [component]: text }, parent })
      }
    >
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

interface RequestProps {
  readonly title: string;
  readonly about?: string;
  readonly submit: string;
  readonly others?: Readonly<Record<string, string>>;
  readonly send: (given: Given, pressed: string) => Promise<Problem | null>;
  readonly children?: ComponentChildren;
}

/** A button that opens the form of a request. */
function Request({ title, about, send, children, ...form }: RequestProps) {
  const [problem, setProblem] = useState<Problem | null>(null);
  const [busy, setBusy] = useState(false);
  return (
    <DialogButton label={title} title={title}>
      {(close) => (
        <Form
          {...form}
          busy={busy}
          problem={problem}
          onSubmit={async (given, pressed) => {
            setBusy(true);
            const found = await send(given, pressed);
            setBusy(false);
            setProblem(found);
            if (found === null) close();
          }}
        >
          {about !== undefined && <p>{about}</p>}
          {children}
        </Form>
      )}
    </DialogButton>
  );
}

async function steer(api: string, action: Action): Promise<Problem | null> {
  const answer = await post(`${api}/steer`, action).catch(() => null);
  if (answer?.ok) return null;
  if (answer === null)
    return problemOf("the server of this page does not answer. Try again once it is back", "Not sent");
  const body = (await answer.json().catch(() => null)) as { error?: unknown } | null;
  return problemOf(typeof body?.error === "string" ? body.error : `the server answered with ${answer.status}`);
}

function problemOf(detail: string, title = "Not accepted"): Problem {
  return { status: 0, title, detail, errors: [] };
}
