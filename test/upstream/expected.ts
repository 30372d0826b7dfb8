import { asArray, asCount, asObject, asText, type JsonObject } from "./json.ts";

/** What an answer says, read in the plainest way, as the measure for everything that relays it. */
export interface Expected {
  content: string;
  reasoning: string;
  toolCalls: ExpectedToolCall[];
  finishReason: string | null;
  usage: ExpectedUsage | null;
}

interface ExpectedToolCall {
  index: number;
  id: string;
  name: string;
  arguments: string;
}

/** Tokens as the provider reported them. */
interface ExpectedUsage {
  promptTokens: number;
  completionTokens: number;
  cachedTokens: number;
  reasoningTokens: number;
}

/** Reads a whole SSE text by JSON.parse of each `data:` line. Throws on a frame that is not JSON. */
export function expectedOfStream(text: string): Expected {
  const payloads = text
    .split(/\r?\n/)
    .filter((line) => line.startsWith("data:"))
    .map((line) => line.slice("data:".length).trim())
    .filter((payload) => payload !== "[DONE]");
  const expected = nothing();
  for (const payload of payloads) addChunk(expected, asObject(JSON.parse(payload)));
  return expected;
}

/** Reads an unstreamed chat completion. */
export function expectedOfWhole(body: unknown): Expected {
  const expected = nothing();
  const completion = asObject(body);
  const choice = asObject(asArray(completion.choices)[0]);
  addMessage(expected, asObject(choice.message));
  if (typeof choice.finish_reason === "string") expected.finishReason = choice.finish_reason;
  expected.usage = usageOf(completion);
  return expected;
}

function nothing(): Expected {
  return { content: "", reasoning: "", toolCalls: [], finishReason: null, usage: null };
}

function addChunk(expected: Expected, chunk: JsonObject): void {
  for (const item of asArray(chunk.choices)) {
    const choice = asObject(item);
    if (choice.index !== 0) continue;
    addMessage(expected, asObject(choice.delta));
    if (typeof choice.finish_reason === "string") expected.finishReason = choice.finish_reason;
  }
  expected.usage = usageOf(chunk) ?? expected.usage;
}

/** A delta of a stream and the message of a whole answer have the same members. */
function addMessage(expected: Expected, message: JsonObject): void {
  expected.content += asText(message.content);
  expected.reasoning += asText(message.reasoning) || asText(message.reasoning_content);
  for (const item of asArray(message.content)) {
    const part = asObject(item);
    if (part.type === "text") expected.content += asText(part.text);
    if (part.type === "thinking") {
      for (const thought of asArray(part.thinking)) {
        expected.reasoning += asText(asObject(thought).text);
      }
    }
  }
  asArray(message.tool_calls).forEach((item, position) => {
    addToolCall(expected, asObject(item), position);
  });
}

function addToolCall(expected: Expected, call: JsonObject, position: number): void {
  // Mistral sends whole calls without an index: their place in the array is the index.
  const index = typeof call.index === "number" ? call.index : position;
  let known = expected.toolCalls.find((one) => one.index === index);
  if (known === undefined) {
    known = { index, id: "", name: "", arguments: "" };
    expected.toolCalls.push(known);
  }
  const called = asObject(call.function);
  known.id ||= asText(call.id);
  known.name ||= asText(called.name);
  known.arguments += asText(called.arguments);
}

function usageOf(body: JsonObject): ExpectedUsage | null {
  const reported = body.usage ?? asObject(body.x_groq).usage;
  if (typeof reported !== "object" || reported === null) return null;
  const usage = asObject(reported);
  return {
    promptTokens: asCount(usage.prompt_tokens),
    completionTokens: completionTokensOf(usage),
    cachedTokens: asCount(
      asObject(usage.prompt_tokens_details).cached_tokens ?? usage.prompt_cache_hit_tokens,
    ),
    reasoningTokens: asCount(asObject(usage.completion_tokens_details).reasoning_tokens),
  };
}

/** All tokens of the answer. xAI reports reasoning beside the completion, but in the total. */
export function completionTokensOf(usage: JsonObject): number {
  const total = asCount(usage.total_tokens);
  return total === 0 ? asCount(usage.completion_tokens) : total - asCount(usage.prompt_tokens);
}
