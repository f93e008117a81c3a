/** A field of a form with its label, its hint, and what the service finds wrong with it. */

import type { ComponentChildren, InputHTMLAttributes } from "preact";
import { Inline } from "../../parts/text";
import { messagesFor, type Problem } from "../request";

export interface FieldProps {
  readonly id: string;
  readonly "aria-describedby"?: string;
  readonly "aria-invalid"?: boolean;
}

interface Props {
  readonly label: string;
  /** The field of the request: the problem names it. */
  readonly name: string;
  readonly problem: Problem | null;
  readonly hint?: ComponentChildren;
  readonly children: (props: FieldProps) => ComponentChildren;
}

export function Field({ label, name, problem, hint, children }: Props) {
  const id = `field-${name}`;
  const messages = messagesFor(problem, name);
  const described = [...(hint === undefined ? [] : [`${id}-hint`]), ...(messages.length > 0 ? [`${id}-error`] : [])];
  return (
    <div class={messages.length > 0 ? "form-field wrong" : "form-field"}>
      <label for={id}>{label}</label>
      {children({
        id,
        ...(described.length > 0 ? { "aria-describedby": described.join(" ") } : {}),
        ...(messages.length > 0 ? { "aria-invalid": true } : {}),
      })}
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

interface TextProps extends Omit<Props, "children"> {
  readonly value: string;
  readonly onChange: (value: string) => void;
  readonly input?: InputHTMLAttributes<HTMLInputElement>;
}

/** A field of one line. */
export function TextField({ value, onChange, input, ...field }: TextProps) {
  return (
    <Field {...field}>
      {(props) => (
        <input
          type="text"
          autocomplete="off"
          spellcheck={false}
          {...input}
          {...props}
          value={value}
          onInput={(event) => onChange(event.currentTarget.value)}
        />
      )}
    </Field>
  );
}
