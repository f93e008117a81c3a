/** Test, read and describe values of unknown type; no getter or method of a value can make the reading fail. */

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Return the value of JSON; undefined if a text is none. */
export function jsonIn(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Describe a value in a message: its beginning, or its kind. */
export function shown(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(value.slice(0, 80));
  if (Array.isArray(value)) return "an array";
  if (typeof value === "object" && value !== null) return "an object";
  return typeof value === "function" ? "a function" : String(value);
}

/** Read a property; undefined if that throws: a getter is the program's code. */
export function read(holder: unknown, name: string | symbol): unknown {
  try {
    return isHolder(holder) || typeof holder === "function"
      ? (holder as Record<string | symbol, unknown>)[name]
      : undefined;
  } catch {
    return undefined;
  }
}

/** Read a property, or what the method of that name returns. */
export function readOrCall(holder: unknown, name: string): unknown {
  const found = read(holder, name);
  if (typeof found !== "function" || found.length > 0) return found;
  try {
    return found.call(holder);
  } catch {
    return undefined;
  }
}

/** The values of the object's own properties; no getter is run. */
export function ownValues(value: object, most: number): unknown[] {
  try {
    return Object.values(Object.getOwnPropertyDescriptors(value))
      .slice(0, most)
      .map((property) => property.value);
  } catch {
    return [];
  }
}

/** The `name` of an error and the name of its class. */
export function namesOf(error: object): [string, string] {
  const own = read(error, "name");
  const constructed = read(read(error, "constructor"), "name");
  return [
    typeof own === "string" && own !== "" ? own : "Error",
    typeof constructed === "string" && constructed !== "" ? constructed : "Error",
  ];
}

/** The most specific name of an error: one that was set, else that of its class, which a bundler may have renamed. */
export function nameOf(error: object): string {
  const [own, constructed] = namesOf(error);
  return own === "Error" ? constructed : own;
}

/** Whether a value is an error, of any realm. */
export function isError(value: unknown): boolean {
  try {
    return value instanceof Error || Object.prototype.toString.call(value) === "[object Error]";
  } catch {
    return false;
  }
}

export function isHolder(value: unknown): value is object {
  return typeof value === "object" && value !== null;
}
