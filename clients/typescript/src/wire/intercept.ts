/** Look at the calls of methods before the methods themselves run. */

type Method = (this: unknown, ...given: unknown[]) => unknown;

/** Call `look` with the receiver and the first arguments of each call of a method of this object, or of those that inherit it. */
export function intercept<Target extends object>(
  target: Target,
  name: string,
  look: (receiver: Target, first: never, second: never, third: never) => void,
): void {
  const method = (target as Record<string, unknown>)[name] as Method | undefined;
  if (typeof method !== "function") return;
  const value: Method = function (first, second, third) {
    look(this as Target, first as never, second as never, third as never);
    // biome-ignore lint/complexity/noArguments: a list made for each call costs more than all else here
    return method.apply(this, arguments as never);
  };
  Object.defineProperty(target, name, { value, configurable: true, writable: true, enumerable: false });
}

/** A function that does its work once for each prototype of the objects that it gets. */
export function oncePerPrototype<Target extends object>(work: (prototype: Target) => void): (target: Target) => void {
  const done = new WeakSet<object>();
  return (target) => {
    const prototype = Object.getPrototypeOf(target) as Target;
    if (done.has(prototype)) return;
    done.add(prototype);
    work(prototype);
  };
}
