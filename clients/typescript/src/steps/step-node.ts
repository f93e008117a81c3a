/** A step of an example: what all have, and one that the program runs itself. */

import { describeFailure } from "../base/failure.js";
import { type JsonValue, wellFormed } from "../base/json.js";
import { jsonOrRepr } from "../base/json-or-repr.js";
import type { Notices } from "../base/notices.js";
import { faults } from "../base/validate.js";
import { isObject } from "../base/values.js";
import type { Step, Usage } from "../generated/types.js";
import type { Candidate, StepHandle, StepLabel } from "../program/program.js";
import { PARSE_FAILURE, ParseFailure, partsOf, titleOf, unknownComponent } from "./steps.js";

/** Parse failures that a step has recorded: the steps around it get an ordinary error. */
const recordedFailures = new WeakSet<ParseFailure>();

/** A step before its example has ended. */
export abstract class StepNode {
  readonly steps: StepNode[] = [];
  around: StepNode | undefined;

  abstract readonly ended: boolean;
  /** A short name for messages. */
  abstract readonly title: string;

  /**
   * The step as the contract has it, without those within it; undefined for what is none: those within take its place.
   *
   * `around`: the steps around it, the innermost last.
   */
  abstract toStep(candidate: Candidate, around: readonly Step[], notices: Notices): Step | undefined;

  /** How many steps are around this one, with it. */
  get depth(): number {
    return 1 + (this.around?.depth ?? 0);
  }
}

export class ProgramStep extends StepNode implements StepHandle {
  usage: Usage = {};
  readonly #started = performance.now();
  readonly #inputs: JsonValue;
  #outputs: JsonValue | undefined;
  #failure: Pick<Step, "error" | "raw" | "expected"> = {};
  #seconds: number | undefined;

  /** The inputs are copied, as the program may change them later. */
  constructor(
    private readonly label: StepLabel,
    inputs: object,
  ) {
    super();
    this.#inputs = jsonOrRepr(inputs);
  }

  get outputs(): unknown {
    return this.#outputs;
  }

  set outputs(value: unknown) {
    this.#outputs = jsonOrRepr(value);
  }

  get ended(): boolean {
    return this.#seconds !== undefined;
  }

  end(result: unknown): void {
    this.#seconds = this.#elapsed();
    if (this.#outputs === undefined) this.outputs = result;
  }

  fail(error: unknown): void {
    this.#seconds = this.#elapsed();
    const { type, message } = describeFailure(error);
    this.#failure = { error: { type, message } };
    if (!(error instanceof ParseFailure) || recordedFailures.has(error)) return;
    recordedFailures.add(error);
    this.#failure = {
      error: { type: PARSE_FAILURE, message },
      raw: textOf(error.raw),
      expected: textOf(error.expected),
    };
  }

  toStep(_candidate: Candidate, _around: readonly Step[], notices: Notices): Step {
    const { component, name } = partsOf(this.label);
    const usage = this.#readUsage(notices);
    return {
      ...(component === undefined ? {} : { component: wellFormed(component) }),
      ...(name === undefined ? {} : { name: wellFormed(name) }),
      inputs: this.#inputs,
      outputs: this.#outputs ?? null,
      ...this.#failure,
      ...(usage === undefined ? {} : { usage }),
      seconds: this.#seconds ?? this.#elapsed(),
    };
  }

  get title(): string {
    return titleOf(this.label);
  }

  #readUsage(notices: Notices): Usage | undefined {
    const usage = jsonOrRepr(this.usage);
    if (isObject(usage) && Object.keys(usage).length === 0) return undefined;
    const [fault] = faults("Usage", usage);
    if (fault === undefined) return usage as Usage;
    notices.once(
      `the usage of the step ${this.title} is left out: ${[fault.path, fault.message].filter(Boolean).join(": ")}`,
    );
    return undefined;
  }

  #elapsed(): number {
    return (performance.now() - this.#started) / 1000;
  }
}

/** Report a step of a component that does not exist. */
export function checkComponent(component: string, candidate: Candidate, notices: Notices): void {
  if (Object.hasOwn(candidate, component)) return;
  notices.once(`a step is of component ${JSON.stringify(component)}: ${unknownComponent(Object.keys(candidate))}`);
}

function textOf(value: unknown): string {
  return typeof value === "string" ? wellFormed(value) : JSON.stringify(jsonOrRepr(value));
}
