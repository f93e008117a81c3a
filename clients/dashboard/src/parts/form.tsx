/** Forms: the browser keeps what is typed, the server finds what is wrong with it. */

import { type ComponentChildren, createContext, createElement } from "preact";
import { useContext, useLayoutEffect, useRef, useState } from "preact/hooks";
import { messagesFor, type Problem, ProblemNotice } from "./problem";
import { Inline } from "./text";

/** What each visible field has, without the space around it; `null` for a field that is empty. */
export type Given = Readonly<Record<string, string | number | null>>;

/** Return the fields that are not empty. */
export function stated(given: Given): Record<string, string | number> {
  return Object.fromEntries(Object.entries(given).flatMap(([name, value]) => (value === null ? [] : [[name, value]])));
}

const ProblemContext = createContext<Problem | null>(null);

interface FormProps {
  readonly busy: boolean;
  readonly problem: Problem | null;
  /** The label of the button that sends, and while it does. */
  readonly submit: string;
  readonly sending?: string;
  /** Further buttons that send, by what `pressed` is then; fields that are required may be empty. */
  readonly others?: Readonly<Record<string, string>>;
  readonly class?: string;
  /** Returns whether the fields are emptied. */
  readonly onSubmit: (given: Given, pressed: string) => Promise<unknown>;
  readonly children?: ComponentChildren;
}

/** A form with its button. A problem is shown at its fields, and as a whole if the form lacks one of them. */
export function Form({
  busy,
  problem,
  submit,
  sending = submit,
  others = {},
  onSubmit,
  children,
  class: kind,
}: FormProps) {
  const form = useRef<HTMLFormElement>(null);
  const [isMarked, setMarked] = useState(false);
  useLayoutEffect(() => {
    const names = fieldsOf(form.current).map(({ name }) => name);
    const errors = problem?.errors ?? [];
    setMarked(errors.length > 0 && errors.every(({ field }) => names.includes(field.split(".")[0] ?? "")));
    const wrong = form.current?.querySelector<HTMLElement>("[aria-invalid=true]");
    const hidden = wrong?.closest("details");
    if (hidden) hidden.open = true;
    wrong?.focus();
  }, [problem]);
  return (
    <form
      class={kind}
      ref={form}
      onSubmit={async (event) => {
        event.preventDefault();
        const sent = event.currentTarget;
        const given = Object.fromEntries(fieldsOf(sent).map((field) => [field.name, givenIn(field)]));
        if ((await onSubmit(given, (event.submitter as HTMLButtonElement | null)?.value ?? "")) === true) sent.reset();
      }}
    >
      <ProblemContext.Provider value={problem}>{children}</ProblemContext.Provider>
      {!isMarked && <ProblemNotice problem={problem} />}
      <p class="row submit tools">
        <button type="submit" class="primary" disabled={busy}>
          {busy ? sending : submit}
        </button>
        {Object.entries(others).map(([name, label]) => (
          <button key={name} type="submit" value={name} formNoValidate disabled={busy}>
            {label}
          </button>
        ))}
        {isMarked && (
          <span class="bad" role="alert">
            Correct the fields that are marked.
          </span>
        )}
      </p>
    </form>
  );
}

type Control = HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement;

function fieldsOf(form: HTMLFormElement | null): Control[] {
  const all = [...(form?.elements ?? [])] as Control[];
  return all.filter((each) => each.name && each.closest("[hidden]") === null);
}

function givenIn(field: Control): string | number | null {
  const text = field.value.trim();
  if (text === "") return null;
  return field.type === "number" ? Number(text) : text;
}

type Changed = (event: { readonly currentTarget: { readonly value: string } }) => void;

interface FieldProps {
  readonly label: string;
  /** The field of the request: the problem names it. */
  readonly name: string;
  readonly hint?: string | undefined;
  /** What may be chosen, by its value; without them it is typed. */
  readonly options?: readonly (readonly [value: string, label: string])[];
  /** Several lines are typed. */
  readonly long?: boolean;
  readonly hidden?: boolean;
  readonly defaultValue?: string;
  readonly type?: "number" | "password";
  readonly min?: number;
  readonly step?: "any";
  readonly required?: boolean;
  readonly placeholder?: string;
  readonly inputMode?: "numeric" | "url";
  readonly autofocus?: boolean;
  readonly value?: string;
  readonly onChange?: Changed;
  readonly onInput?: Changed;
}

/** A field with its label, its hint, and what is wrong with it. */
export function Field({
  label,
  name,
  hint,
  options,
  long = false,
  hidden = false,
  defaultValue,
  ...input
}: FieldProps) {
  const id = `field-${name}`;
  const messages = messagesFor(useContext(ProblemContext), name);
  const described = [hint !== undefined && `${id}-hint`, messages.length > 0 && `${id}-error`].filter(Boolean);
  return (
    <div class={messages.length > 0 ? "form-field wrong" : "form-field"} hidden={hidden}>
      <label for={id}>{label}</label>
      {createElement(
        options !== undefined ? "select" : long ? "textarea" : "input",
        {
          autocomplete: "off",
          spellcheck: false,
          ...(options === undefined && defaultValue !== undefined ? { defaultValue } : {}),
          ...input,
          id,
          name,
          "aria-describedby": described.join(" ") || undefined,
          "aria-invalid": messages.length > 0 || undefined,
        },
        options?.map(([value, shown]) => (
          <option key={value} value={value} selected={value === defaultValue}>
            {shown}
          </option>
        )),
      )}
      {hint !== undefined && (
        <p class="hint" id={`${id}-hint`}>
          {hint}
        </p>
      )}
      {messages.length > 0 && (
        <p class="bad" id={`${id}-error`}>
          <Inline text={messages.join("; ")} length={600} />
        </p>
      )}
    </div>
  );
}

/** A field as data: its name, its label, and what else it has. */
export type Described = readonly [name: string, label: string, more?: Omit<FieldProps, "name" | "label">];

export function Fields({ of }: { of: readonly Described[] }) {
  return (
    <>
      {of.map(([name, label, more]) => (
        <Field key={name} name={name} label={label} {...more} />
      ))}
    </>
  );
}

const LIMITS: readonly Described[] = [
  ["max_metric_calls", "Metric calls", { type: "number", min: 1 }],
  ["max_cost_usd", "Cost in US dollars", { type: "number", min: 0, step: "any" }],
  ["max_seconds", "Seconds", { type: "number", min: 1, step: "any" }],
];

/** The limits of a run that may be raised. `hints`: what they are now. */
export function LimitFields({ hints }: { hints: Readonly<Record<string, string>> }) {
  return (
    <>
      <p>The new limits; an empty one stays as it is.</p>
      <Fields of={LIMITS.map(([name, label, range]) => [name, label, { ...range, hint: hints[name] }])} />
    </>
  );
}
