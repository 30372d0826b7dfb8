import { isFields, jsonValue } from "../../lib/json.ts";
import { nestsDeeperThan } from "../transport/bounded-body.ts";
import { type Part, partOf, rejected, textAt } from "./media-part.ts";
import { GEMINI_3, type ModelGeneration } from "./model-generation.ts";
import { earlierReasoning, NO_SIGNATURE } from "./signatures.ts";

type Fields = Readonly<Record<string, unknown>>;

export interface Content {
  readonly role: "user" | "model";
  readonly parts: readonly Part[];
}

export interface Conversation {
  readonly systemInstruction?: Content;
  readonly contents: readonly Content[];
}

/** Maximum nesting depth of tool arguments and results. Deeper values are sent as text. */
const MAX_DEPTH = 64;

/**
 * Translates the messages of a chat. Leading system messages become the system instruction. Later ones keep
 * their position as user content, because Gemini has no system role there. Consecutive tool results form one
 * content, which Gemini requires for parallel calls. Throws ProviderFailure for a part that Gemini does not
 * support, with the part's path as its `param`.
 */
export function conversationOf(
  messages: readonly Fields[],
  generation: ModelGeneration,
): Conversation {
  const first = messages.findIndex(({ role }) => role !== "system" && role !== "developer");
  // Gemini rejects a request without contents.
  const instructions = first < 0 ? [] : messages.slice(0, first);
  const reader = new MessageReader(generation);
  const parts = instructions.flatMap((message, index) =>
    contentParts(message, `messages.${index}`),
  );
  for (let index = instructions.length; index < messages.length; index++) {
    reader.add(messages[index]!, `messages.${index}`);
  }
  return {
    ...(parts.length > 0 && { systemInstruction: { role: "user", parts } }),
    contents: reader.contents,
  };
}

class MessageReader {
  readonly contents: Content[] = [];
  readonly #generation: ModelGeneration;
  /** Names of called functions by call id. */
  readonly #names = new Map<string, string>();
  /** The content that collects consecutive tool results. */
  #results: Part[] | undefined;

  constructor(generation: ModelGeneration) {
    this.#generation = generation;
  }

  add(message: Fields, path: string): void {
    if (message.role === "tool" || message.role === "function") {
      this.#addResult(message, path);
      return;
    }
    this.#results = undefined;
    const isModel = message.role === "assistant";
    const parts = isModel ? this.#answerParts(message, path) : contentParts(message, path);
    // Gemini rejects a content without parts.
    if (parts.length > 0) this.contents.push({ role: isModel ? "model" : "user", parts });
  }

  #addResult(message: Fields, path: string): void {
    const parts = this.#resultParts(message, path);
    if (this.#results === undefined) {
      this.#results = [];
      this.contents.push({ role: "user", parts: this.#results });
    }
    this.#results.push(...parts);
  }

  /** Returns thoughts, text and calls, in the order in which Gemini answers. */
  #answerParts(message: Fields, path: string): Part[] {
    const reasoning = earlierReasoning(message);
    const parts: Part[] = [...reasoning.thoughts];
    const content = [...contentParts(message, path), ...this.#imageParts(message, path)];
    if (content.length === 0 && typeof message.refusal === "string" && message.refusal !== "") {
      content.push({ text: message.refusal });
    }
    if (reasoning.signature !== undefined) {
      const last = content.pop() ?? { text: "" };
      content.push({ ...last, thoughtSignature: reasoning.signature });
    }
    parts.push(...content);
    const calls = callsOf(message).map(({ call, path: callPath }, index) => {
      const part = this.#callPart(call, `${path}.${callPath}`);
      const signature = reasoning.signatureOfCall(call) ?? this.#placeholderSignature(index);
      return signature === undefined ? part : { ...part, thoughtSignature: signature };
    });
    return [...parts, ...calls];
  }

  /** Returns the images of an earlier answer. Gemini 3 demands a signature for each. */
  #imageParts({ images }: Fields, path: string): Part[] {
    if (!Array.isArray(images)) return [];
    return images.map((image, index) => {
      const part = partOf({ ...(image as Fields), type: "image_url" }, `${path}.images.${index}`);
      const isSigned = this.#generation.version >= GEMINI_3;
      return isSigned ? { ...part, thoughtSignature: NO_SIGNATURE } : part;
    });
  }

  /**
   * Returns the placeholder signature of a call without one. Gemini 3 rejects a turn whose first call has no
   * signature. Of parallel calls only the first has one.
   */
  #placeholderSignature(position: number): string | undefined {
    return position === 0 && this.#generation.version >= GEMINI_3 ? NO_SIGNATURE : undefined;
  }

  #callPart(call: Fields, path: string): Part {
    const calledFunction = call.function;
    if (!isFields(calledFunction))
      throw rejected(path, "Gemini supports only tools that are functions.");
    const name = textAt(calledFunction.name, `${path}.function.name`);
    const { id } = call;
    if (typeof id === "string") this.#names.set(id, name);
    const args = argumentsOf(calledFunction.arguments);
    return { functionCall: { ...(isId(id) && { id }), name, args } };
  }

  #resultParts(message: Fields, path: string): Part[] {
    const { tool_call_id: id, name: stated } = message;
    const name = this.#names.get(id as string) ?? stated;
    if (typeof name !== "string" || name === "") {
      throw rejected(`${path}.tool_call_id`, "No earlier message has a tool call with this id.");
    }
    const parts = contentParts(message, path);
    const text = parts.map((part) => (typeof part.text === "string" ? part.text : "")).join("");
    const media = parts.filter((part) => part.text === undefined);
    const response = resultOf(text);
    // Only Gemini 3 accepts media inside a result; for older models they follow it.
    const inside = this.#generation.version >= GEMINI_3 && media.length > 0;
    const functionResponse = {
      ...(isId(id) && { id }),
      name,
      response,
      ...(inside && { parts: media }),
    };
    return [{ functionResponse }, ...(inside ? [] : media)];
  }
}

function isId(id: unknown): id is string {
  return typeof id === "string" && id !== "";
}

/** Returns the calls of an answer, from `tool_calls` or the older `function_call`. */
function callsOf(message: Fields): { call: Fields; path: string }[] {
  const { tool_calls: calls, function_call: functionCall } = message;
  if (Array.isArray(calls))
    return calls.map((call, index) => ({ call, path: `tool_calls.${index}` }));
  return isFields(functionCall)
    ? [{ call: { function: functionCall }, path: "function_call" }]
    : [];
}

function contentParts({ content }: Fields, path: string): Part[] {
  if (typeof content === "string") return content === "" ? [] : [{ text: content }];
  if (!Array.isArray(content)) return [];
  return content.map((part, index) => partOf(part as Fields, `${path}.content.${index}`));
}

/** Returns the arguments of a call. Gemini requires an object, so any other text is wrapped in one. */
function argumentsOf(text: unknown): Fields {
  if (typeof text !== "string" || text.trim() === "") return {};
  return objectIn(text) ?? { arguments: text };
}

/**
 * Returns a tool result. An object is sent unchanged. Other text goes under `output`, Gemini's name for a
 * result.
 */
function resultOf(text: string): Fields {
  return objectIn(text) ?? { output: text };
}

function objectIn(text: string): Fields | undefined {
  if (!text.trimStart().startsWith("{")) return undefined;
  const value = jsonValue(text);
  return isFields(value) && !nestsDeeperThan(value, MAX_DEPTH) ? value : undefined;
}
