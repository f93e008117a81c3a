/** Standard Schema (standardschema.dev): the interface that zod, valibot, arktype and others share. */

import { SetupError } from "../base/configuration.js";
import { describeFailure } from "../base/failure.js";
import { pathText } from "../base/json.js";
import { isObject, shown } from "../base/values.js";

/** Faults of one value that a message names. */
const MAX_ISSUES = 5;

/** A schema of any library that keeps Standard Schema version 1. */
export interface StandardSchema<Input = unknown, Output = Input> {
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => SchemaResult<Output> | Promise<SchemaResult<Output>>;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
  };
}

type SchemaResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly SchemaIssue[] };

interface SchemaIssue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

/** The value as a schema returns it, or how it does not fit: `path: message`, several joined by `; `. */
type Validated<Output> = { value: Output } | { fault: string };

/** Validate a value; a schema that throws is a fault of it. */
export async function validated<Output>(
  schema: StandardSchema<unknown, Output>,
  value: unknown,
): Promise<Validated<Output>> {
  try {
    const result = await schema["~standard"].validate(value);
    return result.issues === undefined ? { value: result.value } : { fault: faultOf(result.issues) };
  } catch (error) {
    const { type, message } = describeFailure(error);
    return { fault: `the schema threw ${type}: ${message}` };
  }
}

/** Throws `SetupError` for what is no schema; `name`: that of the field or argument. */
export function checkSchema(name: string, schema: unknown): void {
  const standard = Object(schema)["~standard"] as unknown;
  if (isObject(standard) && typeof standard.validate === "function") return;
  throw new SetupError(
    `\`${name}\` must be a Standard Schema, such as one of zod, valibot or arktype, not ${shown(schema)}`,
  );
}

function faultOf(issues: readonly SchemaIssue[]): string {
  const named = issues.slice(0, MAX_ISSUES).map(({ message, path = [] }) => {
    const keys = Array.from(path, (part) => (typeof part === "object" ? part.key : part));
    const where = pathText(keys.map((key) => (typeof key === "number" ? key : String(key))));
    return where === "" ? message : `${where}: ${message}`;
  });
  const more = issues.length - named.length;
  return [...named, ...(more > 0 ? [`and ${more} more`] : [])].join("; ");
}
