/**
 * What a user may ask of a running run. Each request becomes an entry of its journal. Hints are for a reflection model:
 * without one no prompt shows them.
 */

import { useRef, useState } from "preact/hooks";
import { post } from "../connection";
import type { View } from "../state/view";
import type { SteerAction } from "../steer-action";
import { candidateName, score } from "./format";
import { Inline } from "./text";

type Form = "cancel" | "budget" | "propose" | "pin" | "hint";

const TITLES: Record<Form, string> = {
  cancel: "Cancel the run",
  budget: "Raise the budget",
  propose: "Propose a text",
  pin: "Pin or drop a candidate",
  hint: "Hint for reflection",
};

interface Props {
  readonly view: View;
  readonly api: string;
}

export function Steering({ view, api }: Props) {
  const [form, setForm] = useState<Form | null>(null);
  const [answer, setAnswer] = useState<{ readonly failed: boolean; readonly text: string } | null>(null);
  const dialog = useRef<HTMLDialogElement>(null);
  const driven = (view.latest.run?.driven ?? false) && !view.latest.now?.lost;
  const all = Object.keys(TITLES) as Form[];
  const forms = view.latest.run?.reflection_model ? all : all.filter((name) => name !== "hint");
  const show = (next: Form) => {
    setForm(next);
    setAnswer(null);
    dialog.current?.showModal();
  };
  const send = async (action: SteerAction) => {
    setAnswer({ failed: false, text: "Sending." });
    const sent = await steer(api, action);
    setAnswer(sent);
    if (!sent.failed) dialog.current?.close();
  };
  if (!driven) {
    return (
      <div class="steer">
        <span class="quiet">Not running.</span>
      </div>
    );
  }
  return (
    <fieldset class="steer" aria-label="Steering">
      <button type="button" onClick={() => send({ kind: "pause" })}>
        Pause
      </button>
      {forms.map((name) => (
        <button key={name} type="button" aria-haspopup="dialog" onClick={() => show(name)}>
          {TITLES[name]}
        </button>
      ))}
      {answer !== null && (
        <span role="status" class={answer.failed ? "bad" : "quiet"}>
          <Inline text={answer.text} length={300} />
        </span>
      )}
      <dialog ref={dialog} aria-labelledby="steer-title" onClose={() => setForm(null)}>
        <h2 id="steer-title">{form === null ? "Steering" : TITLES[form]}</h2>
        {form !== null && <Fields key={form} form={form} view={view} onSend={send} />}
        {answer?.failed && (
          <p class="bad" role="alert">
            <Inline text={answer.text} length={500} />
          </p>
        )}
        <button type="button" onClick={() => dialog.current?.close()}>
          Close
        </button>
      </dialog>
    </fieldset>
  );
}

async function steer(api: string, action: SteerAction): Promise<{ failed: boolean; text: string }> {
  try {
    const answer = await post(`${api}/steer`, action);
    if (answer.ok) return { failed: false, text: "Asked; it takes effect between two iterations." };
    const body = (await answer.json().catch(() => null)) as { error?: unknown } | null;
    const reason = typeof body?.error === "string" ? body.error : `the server answered with ${answer.status}`;
    return { failed: true, text: `Not accepted: ${reason}` };
  } catch {
    return { failed: true, text: "Not sent: the server of this page does not answer. Try again once it is back." };
  }
}

interface FieldsProps {
  readonly form: Form;
  readonly view: View;
  readonly onSend: (action: SteerAction) => void;
}

function Fields({ form, view, onSend }: FieldsProps) {
  switch (form) {
    case "cancel":
      return <Cancel onSend={onSend} />;
    case "budget":
      return <Budget view={view} onSend={onSend} />;
    case "propose":
      return <Propose view={view} onSend={onSend} />;
    case "pin":
      return <Pin view={view} onSend={onSend} />;
    case "hint":
      return <Hint onSend={onSend} />;
  }
}

function Cancel({ onSend }: Pick<FieldsProps, "onSend">) {
  return (
    <>
      <p>
        The run stops once the examples in flight have ended, and is marked as cancelled. Its results are kept, and it
        can be resumed later.
      </p>
      <p class="field">
        <button type="button" class="primary" onClick={() => onSend({ kind: "cancel" })}>
          Cancel the run
        </button>
      </p>
    </>
  );
}

function Budget({ view, onSend }: Omit<FieldsProps, "form">) {
  const [calls, setCalls] = useState("");
  const [usd, setUsd] = useState("");
  const [seconds, setSeconds] = useState("");
  const given = { max_metric_calls: calls, max_cost_usd: usd, max_seconds: seconds };
  const limits = Object.entries(given).filter(([, text]) => text !== "");
  const fields = [
    ["Metric calls", calls, setCalls, String(view.latest.run?.budget ?? "")],
    ["Cost in US dollars", usd, setUsd, ""],
    ["Seconds", seconds, setSeconds, ""],
  ] as const;
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        onSend({ kind: "budget", ...Object.fromEntries(limits.map(([name, text]) => [name, Number(text)])) });
      }}
    >
      <p>The new limits; an empty one stays as it is.</p>
      {fields.map(([name, value, set, now]) => (
        <label class="field" key={name}>
          {name}{" "}
          <input
            type="number"
            min="0"
            step="any"
            value={value}
            placeholder={now}
            onInput={(event) => set(event.currentTarget.value)}
          />
        </label>
      ))}
      <button type="submit" class="primary" disabled={limits.length === 0}>
        Set the limits
      </button>
    </form>
  );
}

function Candidates({ view, value, onChange }: { view: View; value: number; onChange: (index: number) => void }) {
  return (
    <label class="field">
      Candidate{" "}
      <select value={String(value)} onChange={(event) => onChange(Number(event.currentTarget.value))}>
        {view.candidates.map(({ index, score: value }) => (
          <option key={index} value={String(index)}>
            {candidateName(index)}: {score(value)}
          </option>
        ))}
      </select>
    </label>
  );
}

function Propose({ view, onSend }: Omit<FieldsProps, "form">) {
  const [parent, setParent] = useState(view.best ?? 0);
  const components = view.latest.run?.components ?? [];
  const [component, setComponent] = useState(components[0] ?? "");
  const sent = view.candidates.find(({ index }) => index === parent)?.texts[component];
  const [text, setText] = useState<string | null>(null);
  const shown = text ?? (sent?.omitted ? "" : sent?.text) ?? "";
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        onSend({ kind: "propose", texts: { [component]: shown }, parent });
      }}
    >
      <p>It is evaluated as any proposal, in place of the parent's text.</p>
      <Candidates view={view} value={parent} onChange={setParent} />
      <label class="field">
        Component{" "}
        <select value={component} onChange={(event) => setComponent(event.currentTarget.value)}>
          {components.map((name) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </select>
      </label>
      <label class="field">
        Text
        <textarea value={shown} onInput={(event) => setText(event.currentTarget.value)} />
      </label>
      <button type="submit" class="primary" disabled={shown === "" || shown === sent?.text}>
        Propose it
      </button>
    </form>
  );
}

function Pin({ view, onSend }: Omit<FieldsProps, "form">) {
  const [index, setIndex] = useState(view.best ?? 0);
  return (
    <>
      <p>A pinned candidate is the parent of every proposal; a dropped one is never a parent again, nor the best.</p>
      <Candidates view={view} value={index} onChange={setIndex} />
      <p class="tools">
        <button type="button" class="primary" onClick={() => onSend({ kind: "pin", candidate: index })}>
          Pin
        </button>
        <button type="button" onClick={() => onSend({ kind: "drop", candidate: index })}>
          Drop
        </button>
        <button type="button" onClick={() => onSend({ kind: "unpin" })}>
          Unpin
        </button>
      </p>
    </>
  );
}

function Hint({ onSend }: Pick<FieldsProps, "onSend">) {
  const [text, setText] = useState("");
  const [proposals, setProposals] = useState("");
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        onSend({ kind: "hint", text, ...(proposals === "" ? {} : { proposals: Number(proposals) }) });
      }}
    >
      <p>Prompts of reflection show it from now on.</p>
      <label class="field">
        Hint
        <textarea value={text} onInput={(event) => setText(event.currentTarget.value)} />
      </label>
      <label class="field">
        For the next proposals (empty: all){" "}
        <input
          type="number"
          min="1"
          step="1"
          value={proposals}
          onInput={(event) => setProposals(event.currentTarget.value)}
        />
      </label>
      <p class="tools">
        <button type="submit" class="primary" disabled={text.trim() === ""}>
          Add the hint
        </button>
        <button type="button" onClick={() => onSend({ kind: "clear_hints" })}>
          Clear all hints
        </button>
      </p>
    </form>
  );
}
