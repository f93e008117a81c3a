// Writes src/generated/ from the contract's schema, and the types of what the optimizer sends from its models in Python.
// `--check` writes nothing and fails where a file has drifted.
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { Ajv2020 } from "ajv/dist/2020.js";
import standaloneCode from "ajv/dist/standalone/index.js";
import { buildSync } from "esbuild";
import { compile, type JSONSchema } from "json-schema-to-typescript";

interface MethodRow {
  params: string;
  result: string | null;
  capability: string | null;
  since: string;
  idempotent: boolean;
}

interface Contract {
  "x-methods": Record<string, MethodRow>;
  "x-capabilities": Record<string, string>;
  "x-errors": Record<string, { code: number; message: string; retryable: boolean }>;
  $defs: Record<string, JSONSchema>;
}

const VERSION = "1";
const packageRoot = new URL("../", import.meta.url);
const repository = new URL("../../", packageRoot);
const protocolRoot = new URL("protocol/", repository);
const outputRoot = new URL("src/generated/", packageRoot);
const dashboardTypes = "../../../dashboard/src/generated/";

const banner = "// Generated from the contract's schema by `npm run generate`; do not edit.\n\n";
const optimizer = JSON.parse(
  execFileSync(fileURLToPath(new URL(".venv/bin/python", repository)), ["-m", "scripts.typescript_schemas"], {
    cwd: repository,
    encoding: "utf8",
  }),
) as { settings: Record<string, JSONSchema>; events: JSONSchema; pageEvents: JSONSchema; pageAnswers: JSONSchema };
const contract = readJson(new URL(`schema/v${VERSION}.json`, protocolRoot)) as Contract;

function readJson(file: URL): unknown {
  return JSON.parse(readFileSync(file, "utf8"));
}

/** A copy of the schema with every object in it changed by `change`, innermost first. */
function mapped(node: unknown, change: (object: Record<string, unknown>) => Record<string, unknown>): unknown {
  if (Array.isArray(node)) return node.map((value) => mapped(value, change));
  if (typeof node !== "object" || node === null) return node;
  return change(Object.fromEntries(Object.entries(node).map(([key, value]) => [key, mapped(value, change)])));
}

const isSchema = (node: unknown): boolean =>
  typeof node === "object" &&
  node !== null &&
  ["type", "$ref", "anyOf", "oneOf", "properties"].some((key) => key in node);

/** For types: no titles on fields (each would become an alias), no conditions between fields, opaque values `unknown`. */
function forTypes(object: Record<string, unknown>): Record<string, unknown> {
  const properties = object.properties as Record<string, object> | undefined;
  if (properties === undefined) {
    const { title, ...rest } = object;
    return typeof title === "string" ? rest : object;
  }
  const { title: _title, oneOf: _oneOf, not: _not, if: _if, then: _then, else: _else, ...rest } = object;
  return {
    ...rest,
    properties: mapEntries(properties, (schema) => (isSchema(schema) ? schema : { ...schema, tsType: "unknown" })),
  };
}

function mapEntries<In, Out>(object: Record<string, In>, change: (value: In) => Out): Record<string, Out> {
  return Object.fromEntries(Object.entries(object).map(([key, value]) => [key, change(value)]));
}

async function types(): Promise<string> {
  const schema = {
    $defs: mapped(contract.$defs, forTypes),
    title: "WireTypes",
    description: "Every type of the wire by its name.",
    type: "object",
    properties: Object.fromEntries(Object.keys(contract.$defs).map((name) => [name, { $ref: `#/$defs/${name}` }])),
    required: Object.keys(contract.$defs),
  };
  return compile(schema as JSONSchema, "WireTypes", {
    additionalProperties: false,
    bannerComment: banner.trimEnd(),
    style: { printWidth: 120 },
    unknownAny: true,
  });
}

function tables(): string {
  const methods = contract["x-methods"];
  const used = [...new Set(Object.values(methods).flatMap((row) => [row.params, row.result ?? []].flat()))].sort();
  return [
    banner,
    `import type { ${used.join(", ")} } from "./types.js";\n\n`,
    "/** The version of the contract this package speaks. */\n",
    `export const PROTOCOL_VERSION = ${JSON.stringify(VERSION)};\n\n`,
    "/** Every method: the names of its types, the capability it belongs to (null: core), whether repeating it is free. */\n",
    `export const METHODS = ${JSON.stringify(methods, null, 2)} as const;\n\n`,
    "/** The params and the result of every method. */\n",
    "export interface MethodTypes {\n",
    ...Object.entries(methods).map(
      ([name, row]) => `  ${JSON.stringify(name)}: { params: ${row.params}; result: ${row.result ?? "unknown"} };\n`,
    ),
    "}\n\n",
    "/** Every error: its code, its text where none better is known, whether trying again can help. */\n",
    `export const ERRORS = ${JSON.stringify(contract["x-errors"], null, 2)} as const;\n`,
  ].join("");
}

/**
 * For validators: references by type name, and conditions between fields after the fields themselves, so that the first
 * rule broken is the most specific one.
 */
function forValidators(object: Record<string, unknown>): Record<string, unknown> {
  if (typeof object.$ref === "string") return { ...object, $ref: object.$ref.replace("#/$defs/", "") };
  const { oneOf, not, if: condition, then, else: otherwise, ...fields } = object;
  if (fields.properties === undefined || (oneOf ?? not ?? condition) === undefined) return object;
  const conditions = [{ oneOf }, { not }, { if: condition, then, else: otherwise }];
  return { allOf: [fields, ...conditions.filter((rule) => Object.values(rule)[0] !== undefined)] };
}

/** One plain function per wire type, compiled ahead of time: nothing is evaluated where it runs (Workers forbid it). */
function validators(): string {
  const names = Object.keys(contract.$defs);
  const ajv = new Ajv2020({
    // A schema of its own for each type: they then share one function per type instead of repeating each other.
    schemas: names.map((name) => ({ ...(mapped(contract.$defs[name], forValidators) as object), $id: name })),
    code: { source: true, esm: true, lines: false },
    strict: "log",
    strictSchema: false,
    strictTypes: false,
    strictRequired: false,
    inlineRefs: false,
    messages: true,
  });
  const source = standaloneCode.default(ajv, Object.fromEntries(names.map((name) => [name, name])));
  const bundle = buildSync({
    stdin: { contents: source, resolveDir: fileURLToPath(packageRoot), loader: "js" },
    bundle: true,
    minifySyntax: true,
    minifyWhitespace: true,
    format: "esm",
    target: "es2022",
    legalComments: "none",
    write: false,
  }).outputFiles[0];
  if (bundle === undefined) throw new Error("esbuild wrote nothing");
  return `// @ts-nocheck\n${banner}${bundle.text}`;
}

const validatorTypes = (): string =>
  [
    banner,
    "/** One broken rule, at a JSON pointer into the value. */\n",
    "export interface SchemaError {\n",
    "  instancePath: string;\n  schemaPath: string;\n  keyword: string;\n  params: Record<string, unknown>;\n  message?: string;\n}\n\n",
    "/** True if the value fits; else `errors` holds the reasons until the next call. */\n",
    "export interface SchemaValidator {\n  (value: unknown): boolean;\n  errors?: SchemaError[] | null;\n}\n\n",
    ...Object.keys(contract.$defs).map((name) => `export const ${name}: SchemaValidator;\n`),
  ].join("");

function openrpc(): string {
  const document = readJson(new URL("schema/openrpc.json", protocolRoot));
  return `${banner}/** The contract as an OpenRPC document. */\nexport const OPENRPC: object = ${JSON.stringify(document)};\n`;
}

const camelCase = (name: string): string => name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());

/** For settings: none is null, it is left out instead. Tuples as the compiler knows them. */
function forSettings(object: Record<string, unknown>): Record<string, unknown> {
  const { anyOf, prefixItems, ...rest } = object as { anyOf?: { type?: unknown }[]; prefixItems?: unknown };
  const kinds = anyOf?.filter(({ type }) => type !== "null") ?? [];
  const kind = kinds.length === 1 ? kinds[0] : kinds.length > 1 ? { anyOf: kinds } : {};
  return { ...rest, ...kind, ...(prefixItems === undefined ? {} : { items: prefixItems }) };
}

/** For events: every field is written, so that none has a default. */
function forEvents({ default: _default, ...object }: Record<string, unknown>): Record<string, unknown> {
  const { properties } = object;
  return forTypes(properties === undefined ? object : { ...object, required: Object.keys(properties as object) });
}

/** A description with the names of settings as they are here. */
function respelled(text = ""): string {
  return text.replace(/\b[a-z]+(_[a-z]+)+\b/g, (name) => (name in optimizer.settings ? camelCase(name) : name));
}

/** The settings and the events of `optimize`. */
async function optimizeTypes(): Promise<string> {
  const names = Object.keys(optimizer.settings).map(camelCase);
  const settings = {
    title: "OptimizeSettings",
    description: "The settings of `evolverpc optimize`, but those of its servers and rows.",
    type: "object",
    properties: Object.fromEntries(
      Object.entries(optimizer.settings).map(([name, schema]) => {
        return [
          camelCase(name),
          { ...(mapped(schema, forSettings) as object), description: respelled(schema.description) },
        ];
      }),
    ),
  };
  const events = mapped({ description: "An event of a run.", ...optimizer.events }, forEvents) as JSONSchema;
  const options = {
    additionalProperties: false,
    bannerComment: "",
    style: { printWidth: 120 },
    unknownAny: true,
  };
  return [
    banner,
    await compile(settings as JSONSchema, "OptimizeSettings", options),
    "\n/** Their names. */\n",
    `export const SETTINGS: readonly string[] = ${JSON.stringify(names, null, 2)};\n\n`,
    await compile(events, "RunEvent", options),
  ].join("");
}

/** What the page of a run receives: events, or answers. */
async function pageTypes(schema: JSONSchema, name: string, description: string): Promise<string> {
  return compile(mapped({ description, ...schema }, forEvents) as JSONSchema, name, {
    additionalProperties: false,
    bannerComment: banner.trimEnd(),
    style: { printWidth: 120 },
    unknownAny: true,
  });
}

const files: Record<string, string> = {
  "types.ts": await types(),
  "contract.ts": tables(),
  "validators.js": validators(),
  "validators.d.ts": validatorTypes(),
  "openrpc.ts": openrpc(),
  "optimize.ts": await optimizeTypes(),
  [`${dashboardTypes}events.ts`]: await pageTypes(optimizer.pageEvents, "PageEvent", "An event of the page."),
  [`${dashboardTypes}answers.ts`]: await pageTypes(
    optimizer.pageAnswers,
    "PageAnswer",
    "What the server of the page answers.",
  ),
};

if (process.argv.includes("--check")) {
  const drifted = Object.entries(files).filter(([name, text]) => current(name) !== text);
  for (const [name] of drifted) console.error(`src/generated/${name} differs from the schema; run: npm run generate`);
  process.exitCode = drifted.length > 0 ? 1 : 0;
} else {
  mkdirSync(outputRoot, { recursive: true });
  mkdirSync(new URL(dashboardTypes, outputRoot), { recursive: true });
  for (const [name, text] of Object.entries(files)) writeFileSync(new URL(name, outputRoot), text);
}

function current(name: string): string | undefined {
  try {
    return readFileSync(new URL(name, outputRoot), "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}
