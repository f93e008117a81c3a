/** Which requests are those of a model's API, by their path and their body. */

/** The ends of paths, and the keys that the body has then. */
const REQUESTS: readonly (readonly [path: RegExp, ...keys: readonly RegExp[]])[] = [
  [/\/chat\/completions$/, key("messages")],
  [/\/completions$/, key("prompt")],
  [/\/responses$/, key("model"), key("input", "prompt")],
  [/\/(embeddings|embed|rerank)$/, key("model"), key("input", "inputs", "texts", "query", "images")],
  [/\/messages$/, key("model"), key("messages")],
  [/:(streamG|g)enerateContent$|:(embedContent|batchEmbedContents)$/, key("contents", "content", "requests")],
  [/:(streamR|r)awPredict$/, key("messages")],
  [/\/model\/[^/]+\/(converse(-stream)?|invoke(-with-response-stream)?)$/],
  [/\/v[12]\/(chat|generate)$/, key("message", "messages", "prompt")], // Cohere
  [/\/api\/(chat|generate|embed|embeddings)$/, key("model"), key("messages", "prompt", "input")], // Ollama
];

function key(...names: string[]): RegExp {
  return new RegExp(`"(${names.join("|")})"\\s*:`);
}

/** Paths that show it alone, where no connection was made and nothing was sent. */
const MODELS_OWN =
  /\/chat\/completions$|\/v1\/(messages|responses|embeddings|completions)$|enerateContent$|\/model\/[^/]+\/(converse|invoke)[\w-]*$/;

/** Whether a path may be that of a model's API. */
export function isModelPath(pathname: string): boolean {
  return REQUESTS.some(([path]) => path.test(pathname));
}

/** Whether a request with this path and this body is one of a model; of a body that is `cut`, the rest is unknown. */
export function isModelRequest(pathname: string, body: string, cut = false): boolean {
  if (body === "") return MODELS_OWN.test(pathname);
  if (!/^\s*\{/.test(body)) return false;
  return REQUESTS.some(([path, ...keys]) => path.test(pathname) && (cut || keys.every((each) => each.test(body))));
}
