/** Validate values against the contract's schema; each fault has a readable path. */

import { InvalidParams } from "../generated/errors.js";
import type { WireTypes } from "../generated/types.js";
import * as schemas from "../generated/validators.js";
import { pathText, unpacked } from "./json.js";

export type WireTypeName = keyof WireTypes;

/** One fault: `path` is relative to the value checked, such as `batch[0].data`; empty for the value itself. */
interface Fault {
  path: string;
  message: string;
}

/** The faults of a value, none where it fits the type. A sound value costs no allocation. */
export function faults(type: WireTypeName, value: unknown): Fault[] {
  // biome-ignore lint/performance/noDynamicNamespaceImportAccess: every validator is needed, nothing could be left out
  const validator = schemas[type];
  if (validator(value)) return [];
  return mostSpecific(validator.errors ?? []).map((error) => fault(error, value));
}

/** Return what the markers of a value in the params stand for. Throws `InvalidParams` for one that is none of the contract's. */
export function unpackedParam(value: unknown, path: string): unknown {
  try {
    return unpacked(value);
  } catch (error) {
    if (error instanceof SyntaxError) throw invalidParams({ path, message: error.message });
    throw error;
  }
}

export function invalidParams(...errors: Fault[]): InvalidParams {
  return new InvalidParams(undefined, { errors });
}

/**
 * A value that fits none of several alternatives breaks a rule of each. The rules broken deepest inside the value name
 * the fault; of those, "must be null" and "fits no alternative" are used only if there is no other.
 */
function mostSpecific(errors: schemas.SchemaError[]): schemas.SchemaError[] {
  const depth = (error: schemas.SchemaError): number => error.instancePath.split("/").length;
  const deepest = Math.max(...errors.map(depth));
  const candidates = errors.filter((error) => depth(error) === deepest);
  const whole = candidates.filter((error) => error.keyword === "oneOf");
  if (whole.length > 0) return whole.slice(0, 1);
  const plain = candidates.filter(
    (error) => !["anyOf", "if", "not"].includes(error.keyword) && error.params.type !== "null",
  );
  return plain.length > 0 ? plain : candidates.slice(0, 1);
}

function fault(error: schemas.SchemaError, value: unknown): Fault {
  const where = keys(error.instancePath, value);
  if (/\/(then|else)\//.test(error.schemaPath)) {
    return { path: pathText(where.slice(0, -1)), message: "a score goes with status `ok`, and only with it" };
  }
  const { missingProperty, additionalProperty } = error.params;
  if (typeof missingProperty === "string")
    return { path: pathText([...where, missingProperty]), message: "missing field" };
  if (typeof additionalProperty === "string") {
    return { path: pathText([...where, additionalProperty]), message: "unknown field" };
  }
  return { path: pathText(where), message: message(error) };
}

function message(error: schemas.SchemaError): string {
  if (error.keyword === "oneOf") return "give exactly one of `data` and `split`";
  if (error.keyword === "not") return "give `trajectory` or `trajectory_ref`, not both";
  const allowed = error.params.allowedValues;
  if (Array.isArray(allowed)) return `must be one of ${allowed.map((item) => JSON.stringify(item)).join(", ")}`;
  return error.message ?? "is not valid";
}

/** A JSON pointer's keys; a number is an index only where the value at that place is an array. */
function keys(pointer: string, value: unknown): (string | number)[] {
  let at: unknown = value;
  return pointer
    .split("/")
    .slice(1)
    .map((token) => {
      const key = token.replaceAll("~1", "/").replaceAll("~0", "~");
      const found = Array.isArray(at) ? Number(key) : key;
      at = (at as Record<string | number, unknown>)[found];
      return found;
    });
}
