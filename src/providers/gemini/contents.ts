import { isFields, jsonValue } from "../../lib/json.ts";
import { nestsDeeperThan } from "../transport/bounded-body.ts";
import { type Part, partOf, rejected, textAt } from "./media-part.ts";
import { GEMINI_3, type ModelGeneration } from "./model-generation.ts";
import { keptReasoning, NO_SIGNATURE } from "./signatures.ts";

type Fields = Readonly<Record<string, unknown>>;

export interface Content {
  readonly role: "user" | "model";
  readonly parts: readonly Part[];
}

export interface Conversation {
  readonly systemInstruction?: Content;
  readonly contents: readonly Content[];
}

/** Arguments and results of tools that are nested deeper are sent as text. */
const MAX_DEPTH = 64;

/**
 * Translates the messages of a chat. Leading system messages become the system instruction; later ones keep
 * their place as user content, because Gemini has no system role there. Consecutive tool results form one
 * content, which Gemini requires for parallel calls. Throws ProviderFailure, with the place as its `param`, for
 * what Gemini cannot take.
 */
export function conversationOf(
  messages: readonly Fields[],
  generation: ModelGeneration,
): Conversation {
  const first = messages.findIndex(({ role }) => role !== "system" && role !== "developer");
  // A request without contents is refused.
  const instructions = first < 0 ? [] : messages.slice(0, first);
  const reader = new MessageReader(generation);
  const parts = instructions.flatMap((message, at) => contentParts(message, `messages.${at}`));
  for (let at = instructions.length; at < messages.length; at++) {
    reader.add(messages[at]!, `messages.${at}`);
  }
  return {
    ...(parts.length > 0 && { systemInstruction: { role: "user", parts } }),
    contents: reader.contents,
  };
}

class MessageReader {
  readonly contents: Content[] = [];
  readonly #generation: ModelGeneration;
  /** The names of called functions, by the ids of the calls. */
  readonly #names = new Map<string, string>();
  /** The content that collects consecutive tool results. */
  #results: Part[] | undefined;

  constructor(generation: ModelGeneration) {
    this.#generation = generation;
  }

  add(message: Fields, place: string): void {
    if (message.role === "tool" || message.role === "function") {
      this.#addResult(message, place);
      return;
    }
    this.#results = undefined;
    const isModel = message.role === "assistant";
    const parts = isModel ? this.#answerParts(message, place) : contentParts(message, place);
    // Gemini refuses a content without parts.
    if (parts.length > 0) this.contents.push({ role: isModel ? "model" : "user", parts });
  }

  #addResult(message: Fields, place: string): void {
    const parts = this.#resultParts(message, place);
    if (this.#results === undefined) {
      this.#results = [];
      this.contents.push({ role: "user", parts: this.#results });
    }
    this.#results.push(...parts);
  }

  /** Thoughts, text and calls, in the order in which Gemini answers. */
  #answerParts(message: Fields, place: string): Part[] {
    const kept = keptReasoning(message);
    const parts: Part[] = [...kept.thoughts];
    const said = [...contentParts(message, place), ...this.#imageParts(message, place)];
    if (said.length === 0 && typeof message.refusal === "string" && message.refusal !== "") {
      said.push({ text: message.refusal });
    }
    if (kept.signature !== undefined) {
      const last = said.pop() ?? { text: "" };
      said.push({ ...last, thoughtSignature: kept.signature });
    }
    parts.push(...said);
    const calls = callsOf(message).map(({ call, place: where }, at) => {
      const part = this.#callPart(call, `${place}.${where}`);
      const signature = kept.signatureOfCall(call) ?? this.#standIn(at);
      return signature === undefined ? part : { ...part, thoughtSignature: signature };
    });
    return [...parts, ...calls];
  }

  /** Images of an earlier answer; Gemini 3 wants each with a signature. */
  #imageParts({ images }: Fields, place: string): Part[] {
    if (!Array.isArray(images)) return [];
    return images.map((image, at) => {
      const part = partOf({ ...(image as Fields), type: "image_url" }, `${place}.images.${at}`);
      const isSigned = this.#generation.version >= GEMINI_3;
      return isSigned ? { ...part, thoughtSignature: NO_SIGNATURE } : part;
    });
  }

  /** Gemini 3 refuses a turn whose first call has no signature. Only the first of parallel calls has one. */
  #standIn(position: number): string | undefined {
    return position === 0 && this.#generation.version >= GEMINI_3 ? NO_SIGNATURE : undefined;
  }

  #callPart(call: Fields, place: string): Part {
    const called = call.function;
    if (!isFields(called)) throw rejected(place, "Gemini has functions alone as tools.");
    const name = textAt(called.name, `${place}.function.name`);
    const { id } = call;
    if (typeof id === "string") this.#names.set(id, name);
    const args = argumentsOf(called.arguments);
    return { functionCall: { ...(isId(id) && { id }), name, args } };
  }

  #resultParts(message: Fields, place: string): Part[] {
    const { tool_call_id: id, name: stated } = message;
    const name = this.#names.get(id as string) ?? stated;
    if (typeof name !== "string" || name === "") {
      throw rejected(`${place}.tool_call_id`, "No earlier message has a tool call with this id.");
    }
    const parts = contentParts(message, place);
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

/** The calls of an answer, in the present form or in the old one of functions. */
function callsOf(message: Fields): { call: Fields; place: string }[] {
  const { tool_calls: calls, function_call: called } = message;
  if (Array.isArray(calls)) return calls.map((call, at) => ({ call, place: `tool_calls.${at}` }));
  return isFields(called) ? [{ call: { function: called }, place: "function_call" }] : [];
}

function contentParts({ content }: Fields, place: string): Part[] {
  if (typeof content === "string") return content === "" ? [] : [{ text: content }];
  if (!Array.isArray(content)) return [];
  return content.map((part, at) => partOf(part as Fields, `${place}.content.${at}`));
}

/** Gemini requires an object, so any other text is wrapped in one. */
function argumentsOf(text: unknown): Fields {
  if (typeof text !== "string" || text.trim() === "") return {};
  return objectIn(text) ?? { arguments: text };
}

/** An object is sent unchanged; other text goes under `output`, Gemini's name for a result. */
function resultOf(text: string): Fields {
  return objectIn(text) ?? { output: text };
}

function objectIn(text: string): Fields | undefined {
  if (!text.trimStart().startsWith("{")) return undefined;
  const value = jsonValue(text);
  return isFields(value) && !nestsDeeperThan(value, MAX_DEPTH) ? value : undefined;
}
