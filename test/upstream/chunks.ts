import { type Completion, pieces } from "./completion.ts";
import { asArray, asObject, type JsonObject } from "./json.ts";

const ARGUMENT_PIECES = 3;

/** The body of an unstreamed answer (OpenAI, "The chat completion object"). */
export function wholeBody(completion: Completion): JsonObject {
  const { reasoning, toolCalls } = completion;
  const message = {
    role: "assistant",
    content: toolCalls.length > 0 ? null : completion.content.join(""),
    ...(reasoning === "" ? {} : { reasoning_content: reasoning }),
    ...(toolCalls.length === 0 ? {} : { tool_calls: toolCalls.map(asCall) }),
    refusal: null,
  };
  return {
    ...headOf(completion, "chat.completion"),
    choices: Array.from({ length: completion.choices }, (_, index) => ({
      index,
      message,
      logprobs: null,
      finish_reason: completion.finishReason,
    })),
    ...(completion.usage === null ? {} : { usage: completion.usage }),
  };
}

/** The role, reasoning, content and tool-call chunks of each choice, in turn. */
export function deltaChunks(completion: Completion): JsonObject[] {
  const deltas: JsonObject[] = [{ role: "assistant", content: "" }];
  if (completion.reasoning !== "") deltas.push({ reasoning_content: completion.reasoning });
  deltas.push(...completion.content.map((content) => ({ content })));
  completion.toolCalls.forEach((call, index) => {
    deltas.push({ tool_calls: [{ index, ...asCall({ ...call, arguments: "" }) }] });
    for (const part of pieces(call.arguments, ARGUMENT_PIECES)) {
      deltas.push({ tool_calls: [{ index, function: { arguments: part } }] });
    }
  });
  return deltas.flatMap((delta) => everyChoice(completion, delta, null));
}

export function finishChunks(completion: Completion): JsonObject[] {
  return everyChoice(completion, {}, completion.finishReason);
}

/** The last chunk of a stream with `include_usage`; none where there is no usage. */
export function usageChunks(completion: Completion): JsonObject[] {
  if (completion.usage === null) return [];
  return [{ ...headOf(completion, "chat.completion.chunk"), choices: [], usage: completion.usage }];
}

export function contentChunk(completion: Completion, content: string): JsonObject {
  return chunk(completion, 0, { content }, null);
}

export function isFinishChunk(chunk: JsonObject): boolean {
  return asArray(chunk.choices).some((choice) => asObject(choice).finish_reason !== null);
}

function everyChoice(
  completion: Completion,
  delta: JsonObject,
  finishReason: string | null,
): JsonObject[] {
  return Array.from({ length: completion.choices }, (_, index) =>
    chunk(completion, index, delta, finishReason),
  );
}

function chunk(
  completion: Completion,
  index: number,
  delta: JsonObject,
  finishReason: string | null,
): JsonObject {
  return {
    ...headOf(completion, "chat.completion.chunk"),
    choices: [{ index, delta, logprobs: null, finish_reason: finishReason }],
  };
}

function headOf(completion: Completion, object: string): JsonObject {
  const { id, created, model } = completion;
  return { id, object, created, model, system_fingerprint: "fp_upstream" };
}

function asCall(call: { id: string; name: string; arguments: string }): JsonObject {
  return {
    id: call.id,
    type: "function",
    function: { name: call.name, arguments: call.arguments },
  };
}
