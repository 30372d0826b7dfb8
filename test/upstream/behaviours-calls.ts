import type { BehaviourFunction, Call } from "./behaviour.ts";
import { asArray, asObject, type JsonObject } from "./json.ts";
import { inEachMessage, messageOf, withMessage } from "./message.ts";
import { completed } from "./scripted.ts";
import type { Answer } from "./wire.ts";

/** Behaviours that put tool calls in a way of their own; what is called is the regular thing. */
export const CALL_BEHAVIOURS = {
  /** As Mistral: each call in one piece, neither typed nor numbered, beside an empty text. */
  "calls-untyped": (call) =>
    whole(call, ({ id, function: called }) => ({ id, function: called }), { content: "" }),
  "calls-without-ids": (call) => whole(call, ({ id: _, ...rest }) => ({ ...rest, id: "" })),
  "calls-at-index-0": (call) => whole(call, (one) => ({ ...one, index: 0 })),
  "calls-as-objects": (call) =>
    whole(call, (one, index) => ({ ...one, index, function: withObject(asObject(one.function)) })),
  "calls-from-1": (call) =>
    inPieces(call, (piece) => ({ ...piece, index: Number(piece.index) + 1 })),
  /** As some servers of open-weight models: each piece has an id, and null where it says nothing. */
  "calls-with-ids-anew": (call) => {
    let pieces = 0;
    return inPieces(call, ({ id, type = null, function: called, ...rest }) => ({
      ...rest,
      id: id ?? `anew-${pieces++}`,
      type,
      function: { name: null, ...asObject(called) },
    }));
  },
  "calls-with-plain-stop": (call) => {
    const stopped = { ...call.completion, finishReason: "stop" as const };
    return completed({ ...call, completion: stopped });
  },
  /** A text, and told with it that nothing is called. */
  "calls-of-null": (call) => inEachMessage(call, { tool_calls: null, function_call: null }),
  "calls-of-none": (call) => inEachMessage(call, { tool_calls: [] }),
} satisfies Record<string, BehaviourFunction>;

type Rewrite = (call: JsonObject, index: number) => JsonObject;

/** Each call in one piece of a stream, as it is in a whole answer. */
function whole(call: Call, rewrite: Rewrite, beside: JsonObject = {}): Answer {
  const { toolCalls } = call.completion;
  const calls = toolCalls.map(({ id, name, arguments: text }, index) =>
    rewrite({ id, type: "function", function: { name, arguments: text } }, index),
  );
  let sent = 0;
  return completed(call, {
    chunks: (chunks) =>
      chunks.flatMap((chunk) => {
        const [piece] = asArray(messageOf(chunk).tool_calls);
        if (piece === undefined) return [chunk];
        if (asObject(piece).id === undefined) return [];
        return [withMessage(chunk, { ...beside, tool_calls: [calls[sent++]] })];
      }),
    whole: (body) => withMessage(body, { ...beside, tool_calls: calls }),
  });
}

/** What differs is each piece of a stream; a whole answer is the regular one. */
function inPieces(call: Call, rewrite: (piece: JsonObject) => JsonObject): Answer {
  return completed(call, {
    chunks: (chunks) =>
      chunks.map((chunk) => {
        const [piece] = asArray(messageOf(chunk).tool_calls);
        return piece === undefined
          ? chunk
          : withMessage(chunk, { tool_calls: [rewrite(asObject(piece))] });
      }),
  });
}

function withObject(called: JsonObject): JsonObject {
  return { ...called, arguments: JSON.parse(String(called.arguments)) };
}
