import { readFileSync } from "node:fs";
import { join } from "node:path";
import { YAML } from "bun";
import { asArray, asCount, asObject, asText, type JsonObject } from "./json.ts";

/** An answer of Cohere's Chat API, version 2, as it was recorded, and the message that it amounts to. */
interface CohereRecording {
  readonly stream: boolean;
  /** The bytes of a stream, framed; of a whole answer the body. */
  readonly text: string;
  readonly said: CohereMessage;
}

export interface CohereMessage {
  readonly content: string;
  /** Thinking, and the plan of calls. */
  readonly reasoning: string;
  readonly calls: readonly { readonly name: string; readonly arguments: string }[];
  readonly finishReason: string;
  readonly billed: { readonly input: number; readonly output: number };
  readonly tokens: { readonly input: number; readonly cached: number };
}

const FIXTURES = join(import.meta.dir, "..", "fixtures");

export const COHERE_RECORDINGS = [
  "pydantic-ai/cohere/test_request_usage_with_cached_tokens.yaml",
  ...["reasoning", "text", "tool-call"].flatMap((what) => [
    `vercel-ai/cohere/cohere-${what}.chunks.txt`,
    `vercel-ai/cohere/cohere-${what}.json`,
  ]),
];

export function cohereRecording(name: string): CohereRecording {
  const file = readFileSync(join(FIXTURES, name), "utf8");
  if (name.endsWith(".chunks.txt")) {
    const lines = file.split("\n").filter((line) => line.trim() !== "");
    const events = lines.map((line) => asObject(JSON.parse(line)));
    const text = events
      .map((event, at) => `event: ${asText(event.type)}\ndata: ${lines[at]}\n\n`)
      .join("");
    return { stream: true, text, said: messageOf(joined(events)) };
  }
  const answer = name.endsWith(".yaml") ? answerOfCassette(file) : asObject(JSON.parse(file));
  return { stream: false, text: JSON.stringify(answer), said: messageOf(answer) };
}

function answerOfCassette(file: string): JsonObject {
  const [exchange] = asArray(asObject(YAML.parse(file)).interactions);
  return asObject(asObject(asObject(exchange).response).parsed_body);
}

/** The answer that a stream amounts to, as if it had not been streamed. */
function joined(events: readonly JsonObject[]): JsonObject {
  const content: { text: string; thinking: string }[] = [];
  const calls: { id: unknown; function: { name: unknown; arguments: string } }[] = [];
  let plan = "";
  let end: JsonObject = {};
  for (const { type, index, delta } of events) {
    const message = asObject(asObject(delta).message);
    const at = asCount(index);
    if (type === "content-start") content[at] = { text: "", thinking: "" };
    if (type === "content-delta") {
      content[at]!.text += asText(asObject(message.content).text);
      content[at]!.thinking += asText(asObject(message.content).thinking);
    }
    if (type === "tool-plan-delta") plan += asText(message.tool_plan);
    const call = asObject(message.tool_calls);
    const called = asObject(call.function);
    if (type === "tool-call-start") {
      calls[at] = { id: call.id, function: { name: called.name, arguments: "" } };
    }
    if (type === "tool-call-delta") calls[at]!.function.arguments += asText(called.arguments);
    if (type === "message-end") end = asObject(delta);
  }
  return { ...end, message: { content, tool_plan: plan, tool_calls: calls } };
}

function messageOf(answer: JsonObject): CohereMessage {
  const message = asObject(answer.message);
  const blocks = asArray(message.content).map(asObject);
  const usage = asObject(answer.usage);
  const billed = asObject(usage.billed_units);
  return {
    content: blocks.map(({ text }) => asText(text)).join(""),
    reasoning: blocks.map(({ thinking }) => asText(thinking)).join("") + asText(message.tool_plan),
    calls: asArray(message.tool_calls).map((call) => {
      const called = asObject(asObject(call).function);
      return { name: asText(called.name), arguments: asText(called.arguments) };
    }),
    finishReason: asText(answer.finish_reason),
    billed: { input: asCount(billed.input_tokens), output: asCount(billed.output_tokens) },
    tokens: {
      input: asCount(asObject(usage.tokens).input_tokens),
      cached: asCount(usage.cached_tokens),
    },
  };
}
