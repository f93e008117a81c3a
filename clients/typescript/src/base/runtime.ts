/** What runtimes have in different forms: modules of Node, of which nothing is imported here, and timers. */

/** The part of Node's `AsyncLocalStorage` that is used here. */
export interface AsyncStorage<Store> {
  run<Result>(store: Store, work: () => Result): Result;
  getStore(): Store | undefined;
}

interface Runtime {
  AsyncLocalStorage?: new () => AsyncStorage<never>;
  process?: { getBuiltinModule?: (name: string) => object | undefined };
}

interface Inspector {
  Session: new () => {
    connect(): void;
    on(event: "Debugger.scriptParsed", listener: (message: { params: { url: string } }) => void): void;
    post(method: string): void;
    disconnect(): void;
  };
}

/** Return a storage that follows asynchronous calls; undefined in a runtime without one. */
export function asyncStorage<Store>(): AsyncStorage<Store> | undefined {
  const Kind = (globalThis as Runtime).AsyncLocalStorage ?? builtin<Runtime>("node:async_hooks")?.AsyncLocalStorage;
  return Kind && (new Kind() as AsyncStorage<Store>);
}

/** Whether the runtime is Node.js itself, whose `fetch` is undici's. */
export function isNode(): boolean {
  const { process, Bun, Deno } = globalThis as {
    process?: { versions?: { undici?: string } };
    Bun?: unknown;
    Deno?: unknown;
  };
  return process?.versions?.undici !== undefined && Bun === undefined && Deno === undefined;
}

/** Return a value as Node shows it, or as a text in a runtime without Node. */
export function inspected(value: unknown): string {
  const util = builtin<{ inspect?: (value: unknown) => string }>("node:util");
  return util?.inspect ? util.inspect(value) : String(value);
}

/**
 * Return the URLs of all loaded scripts, of modules of both kinds; none in a runtime without Node's inspector.
 *
 * It takes some 20 ms.
 */
export function loadedScripts(): string[] {
  const Session = builtin<Inspector>("node:inspector")?.Session;
  if (Session === undefined) return [];
  const urls: string[] = [];
  const session = new Session();
  session.connect();
  session.on("Debugger.scriptParsed", ({ params }) => urls.push(params.url));
  session.post("Debugger.enable");
  session.disconnect();
  return urls;
}

/** Return a module of Node; undefined in a runtime without it. */
export function builtin<Module extends object>(name: string): Module | undefined {
  return (globalThis as Runtime).process?.getBuiltinModule?.(name) as Module | undefined;
}

/** The longest delay of a timer; a longer one would fire at once. */
export const MAX_TIMER_MS = 2 ** 31 - 1;

/** Call `action` once after so many seconds; returns a function that prevents it. */
export function runAfter(seconds: number, action: () => void): () => void {
  const timer: unknown = setTimeout(action, Math.min(seconds * 1000, MAX_TIMER_MS));
  // Node and Bun return objects with `unref`, other runtimes plain numbers.
  (timer as { unref?: () => void }).unref?.();
  return () => clearTimeout(timer as ReturnType<typeof setTimeout>);
}
