/** Models of the AI SDK (version 5 or later) and of Mastra whose calls are steps, with telemetry or without. */

import { tapped } from "../base/streams.js";
import { isObject, shown } from "../base/values.js";
import { answered } from "./ai-sdk-telemetry.js";
import { ModelCall, modelKey, tracedModels } from "./model-calls.js";

/** What a language model of any version has. */
interface LanguageModel {
  readonly specificationVersion: string;
  readonly provider: string;
  readonly modelId: string;
  readonly supportedUrls: unknown;
  // biome-ignore lint/suspicious/noExplicitAny: each version of the AI SDK has types of its own
  doGenerate(options: any): PromiseLike<unknown>;
  // biome-ignore lint/suspicious/noExplicitAny: as above
  doStream(options: any): PromiseLike<{ stream: ReadableStream<any> }>;
}

/**
 * Return a model whose calls are steps and count as usage of the example that runs; else it does what the given one does.
 *
 * The step is of the component whose text the system message contains. Throws `TypeError` for what is no model.
 */
export function traced<Model extends LanguageModel>(model: Model): Model {
  if (!isObject(model) || typeof model.doGenerate !== "function") {
    throw new TypeError(`traced() takes a language model, such as traced(openai("gpt-5")); it got ${shown(model)}`);
  }
  tracedModels.add(modelKey(model));
  const begun = ({ prompt }: { prompt?: unknown }): ModelCall =>
    new ModelCall({ model: model.modelId, messages: prompt });
  const wrapped: LanguageModel = {
    specificationVersion: model.specificationVersion,
    provider: model.provider,
    modelId: model.modelId,
    get supportedUrls() {
      return model.supportedUrls;
    },
    async doGenerate(options) {
      const call = begun(options);
      const result = await call.run(() => model.doGenerate(options));
      call.end(answered(result));
      return result;
    },
    async doStream(options) {
      const call = begun(options);
      const result = await call.run(() => model.doStream(options));
      return { ...result, stream: recorded(result.stream, call) };
    },
  };
  return wrapped as Model;
}

function recorded(stream: ReadableStream<unknown>, call: ModelCall): ReadableStream<unknown> {
  const texts: string[] = [];
  const content: unknown[] = [];
  let usage: unknown;
  const onPart = (part: unknown): void => {
    if (!isObject(part)) return;
    if (part.type === "text-delta") texts.push(String(part.delta));
    else if (part.type === "tool-call") content.push(part);
    else if (part.type === "finish") usage = part.usage;
    else if (part.type === "error") call.fail(part.error);
  };
  return tapped(stream, onPart, (error) => {
    if (error !== undefined) return call.fail(error);
    const text = texts.length === 0 ? [] : [{ type: "text", text: texts.join("") }];
    call.end(answered({ content: [...text, ...content], usage }));
  });
}
