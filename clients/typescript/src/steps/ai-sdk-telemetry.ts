/** Steps of the AI SDK by itself, from version 7 on: it reports its calls to integrations that are registered globally. */

import { isObject } from "../base/values.js";
import type { ModelUsage } from "../generated/types.js";
import type { StepHandle } from "../program/program.js";
import { type Answered, ModelCall, modelKey, tracedModels } from "./model-calls.js";
import { step } from "./steps.js";

/** What is read of events; `callId` names the call of the AI SDK, such as `generateText`. Version 6 has none. */
interface Event {
  callId?: string;
  instructions?: unknown;
  messages?: unknown;
  promptMessages?: unknown;
  content?: unknown;
  objectText?: string;
  usage?: unknown;
  error?: unknown;
  toolOutput?: { output?: unknown };
}

type CallStart = Event & { provider?: string; modelId: string };
type ToolCall = { toolCallId: string; toolName: string; input: unknown };
type Execution<Result> = Event & { toolCall?: ToolCall; execute: () => PromiseLike<Result> };

/** Calls of models that run, by the call of the AI SDK, which makes one after another. */
const modelCalls = new Map<string, ModelCall>();
const toolSteps = new Map<string, StepHandle>();

function onStart({ callId, modelId: model, instructions, messages, promptMessages }: CallStart): void {
  if (callId === undefined || isRecordedByAnother()) return;
  const systems = [instructions].flat().filter(Boolean).map(asMessage);
  const asked = Array.isArray(messages) ? [...systems, ...messages] : promptMessages;
  modelCalls.set(callId, new ModelCall({ model, messages: asked }, false));
}

function onEnd({ callId = "", content, objectText, usage }: Event): void {
  modelCalls.get(callId)?.end(answered({ content: content ?? [{ type: "text", text: objectText }], usage }));
  modelCalls.delete(callId);
}

function onFailure({ callId = "", error = new Error("aborted") }: Event): void {
  modelCalls.get(callId)?.fail(error);
  modelCalls.delete(callId);
}

const integration = {
  onLanguageModelCallStart: onStart,
  onLanguageModelCallEnd: onEnd,
  onObjectStepStart: (start: CallStart): void => {
    if (!tracedModels.has(modelKey(start))) onStart(start); // there is no `execute` for the calls of `generateObject`
  },
  onObjectStepEnd: onEnd,
  onError: onFailure,
  onAbort: onFailure,
  async executeLanguageModelCall<Result>({ callId = "", execute }: Execution<Result>): Promise<Result> {
    return modelCalls.get(callId)?.around(execute) ?? execute();
  },
  async executeTool<Result>({ callId, toolCall, execute }: Execution<Result>): Promise<Result> {
    if (toolCall === undefined || isRecordedByAnother()) return execute();
    const { toolCallId, toolName: name, input } = toolCall;
    return step({ name }, isObject(input) ? input : { input }, async (handle) => {
      toolSteps.set(`${callId} ${toolCallId}`, handle);
      return execute();
    });
  },
  onToolExecutionEnd({ callId, toolCall: { toolCallId }, toolOutput }: Event & { toolCall: ToolCall }): void {
    const ended = toolSteps.get(`${callId} ${toolCallId}`);
    if (ended !== undefined && toolOutput?.output !== undefined) ended.outputs = toolOutput.output;
    toolSteps.delete(`${callId} ${toolCallId}`);
  },
};

/** Register the integration, once. */
export function watchAiSdk(): void {
  const all = globalThis as { AI_SDK_TELEMETRY_INTEGRATIONS?: unknown[] };
  all.AI_SDK_TELEMETRY_INTEGRATIONS ??= [];
  if (!all.AI_SDK_TELEMETRY_INTEGRATIONS.includes(integration)) all.AI_SDK_TELEMETRY_INTEGRATIONS.push(integration);
}

/** Whether an integration makes spans, which are steps then. */
function isRecordedByAnother(): boolean {
  const { AI_SDK_TELEMETRY_INTEGRATIONS: all = [] } = globalThis as { AI_SDK_TELEMETRY_INTEGRATIONS?: unknown[] };
  return all.some((each) => each !== integration && isObject(each) && "tracer" in each);
}

function asMessage(instructions: unknown): unknown {
  return typeof instructions === "string" ? { role: "system", content: instructions } : instructions;
}

/** Return the message and the usage of a result: `{content, usage}`. */
export function answered(result: unknown): Answered {
  const { content, usage } = isObject(result) ? result : {};
  const parts = Array.isArray(content) ? content.filter((part) => isObject(part) && part.type !== "reasoning") : [];
  return { messages: [{ role: "assistant", content: parts }], usage: isObject(usage) ? counted(usage) : undefined };
}

/** The counts of versions 3 and later of the models' specification, and those of version 2. */
function counted(usage: Record<string, unknown>): ModelUsage | undefined {
  const input = isObject(usage.inputTokens) ? usage.inputTokens : { total: usage.inputTokens };
  const output = isObject(usage.outputTokens) ? usage.outputTokens : { total: usage.outputTokens };
  if (typeof input.total !== "number" || typeof output.total !== "number") return undefined;
  const parts = {
    cached_input_tokens: input.cacheRead ?? usage.cachedInputTokens,
    cache_write_tokens: input.cacheWrite,
  };
  const known = Object.entries(parts).filter(([, count]) => typeof count === "number" && count > 0);
  return { input_tokens: input.total, output_tokens: output.total, ...Object.fromEntries(known) };
}
