/** One of a few options, all of them visible. */

interface Props<Option extends string> {
  readonly legend: string;
  readonly options: readonly (readonly [Option, string])[];
  readonly value: Option;
  readonly onChange: (option: Option) => void;
}

export function Choice<Option extends string>({ legend, options, value, onChange }: Props<Option>) {
  return (
    <fieldset>
      <legend>{legend}</legend>
      <span class="choice">
        {options.map(([option, label]) => (
          <button key={option} type="button" aria-pressed={option === value} onClick={() => onChange(option)}>
            {label}
          </button>
        ))}
      </span>
    </fieldset>
  );
}
