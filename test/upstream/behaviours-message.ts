import type { BehaviourFunction } from "./behaviour.ts";
import { asArray, asObject, type JsonObject } from "./json.ts";
import { inEachMessage, messageOf, withMessage } from "./message.ts";
import { completed } from "./scripted.ts";

/** Behaviours that say the regular thing, or something near it, in other members. */
export const MESSAGE_BEHAVIOURS = {
  /** As servers that take the time anew for each chunk. */
  "created-anew": (call) =>
    completed(call, {
      chunks: (chunks) => chunks.map((one, i) => ({ ...one, created: Number(one.created) + i })),
    }),
  "created-0": (call) =>
    completed(call, {
      chunks: (chunks) => chunks.map((one) => ({ ...one, created: 0 })),
      whole: (body) => ({ ...body, created: 0 }),
    }),
  refusal: (call) =>
    completed(call, { chunks: (chunks) => chunks.map(asRefusal), whole: asRefusal }),
  /** As most servers but OpenAI's: what is null is left out. */
  "without-nulls": (call) => completed(call, { whole: (body) => withoutNulls(body) as JsonObject }),
  /** As vLLM, which writes out all that it does not say. */
  nulls: (call) => {
    const head = { service_tier: null, system_fingerprint: null };
    const said = { annotations: null, audio: null, function_call: null, reasoning_content: null };
    return completed(call, {
      chunks: (chunks) => chunks.map((one) => withMessage({ ...one, ...head }, said)),
      whole: (body) =>
        withMessage({ ...body, ...head }, { refusal: null, tool_calls: [], ...said }),
    });
  },
  /** As OpenRouter, which tells reasoning a second time. */
  "reasoning-details": (call) => {
    const text = call.options.reasoning;
    return inEachMessage(call, { reasoning_details: [{ type: "reasoning.text", text }] });
  },
  /** As Groq, which has other tiers than OpenAI. */
  "tier-on-demand": (call) =>
    completed(call, {
      chunks: (chunks) => chunks.map((one) => ({ ...one, service_tier: "on_demand" })),
      whole: (body) => ({ ...body, service_tier: "on_demand" }),
    }),
  "tier-default": (call) =>
    completed(call, {
      chunks: (chunks) => chunks.map((one) => ({ ...one, service_tier: "default" })),
      whole: (body) => ({ ...body, service_tier: "default" }),
    }),
  "empty-error": (call) =>
    completed(call, {
      chunks: (chunks) => chunks.map((one) => ({ ...one, error: {} })),
      whole: (body) => ({ ...body, error: {} }),
    }),
  /** The form that came before tools. */
  "old-function-call": (call) => {
    const [called] = call.completion.toolCalls;
    const { name, arguments: text } = called!;
    return inEachMessage(
      { ...call, completion: { ...call.completion, toolCalls: [] } },
      { function_call: { name, arguments: text } },
    );
  },
} satisfies Record<string, BehaviourFunction>;

function asRefusal(body: JsonObject): JsonObject {
  const { content } = messageOf(body);
  return content ? withMessage(body, { content: null, refusal: content }) : body;
}

function withoutNulls(value: unknown): unknown {
  if (Array.isArray(value)) return asArray(value).map(withoutNulls);
  if (typeof value !== "object") return value;
  const kept = Object.entries(asObject(value)).filter(([, member]) => member !== null);
  return Object.fromEntries(kept.map(([name, member]) => [name, withoutNulls(member)]));
}
