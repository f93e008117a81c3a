/** Look at the calls of one object's method. */

/** Call `look` with the arguments of each call before the method itself runs. */
export function intercept(target: object, name: string, look: (...given: never[]) => void): void {
  const method = (target as Record<string, unknown>)[name];
  if (typeof method !== "function") return;
  const value = function (this: unknown, ...given: unknown[]): unknown {
    look(...(given as never[]));
    return method.apply(this, given);
  };
  Object.defineProperty(target, name, { value, configurable: true, writable: true, enumerable: false });
}
