import { dataOfUrl } from "../../lib/data-url.ts";
import { isFields, jsonValue } from "../../lib/json.ts";
import { ProviderFailure } from "../interface.ts";

type Fields = Readonly<Record<string, unknown>>;

/**
 * OpenAI's messages as Ollama's (https://docs.ollama.com/api/chat): texts of one message are one content, its
 * images and sounds are separate fields in base64, and tool results name their function. Throws ProviderFailure
 * that names what has no counterpart.
 */
export function ollamaMessages(messages: readonly Fields[]): Fields[] {
  /** The names of called functions, by the ids of the calls. */
  const names = new Map<unknown, unknown>();
  return messages.map((message, at) => {
    const place = `messages.${at}`;
    const { role, reasoning, reasoning_content: otherName, tool_call_id: id } = message;
    if (role === "function") throw unsupported(`${place}.role`, "messages of the role function");
    const calls = callsOf(message.tool_calls, place);
    for (const call of calls) names.set(call.id, call.function.name);
    const { text, media } = contentOf(message.content, place);
    const thinking = role === "assistant" ? (reasoning ?? otherName) : undefined;
    return {
      role: role === "developer" ? "system" : role,
      content: text === "" && typeof message.refusal === "string" ? message.refusal : text,
      ...(typeof thinking === "string" && thinking !== "" && { thinking }),
      ...(media.length > 0 && { images: media }),
      ...(calls.length > 0 && { tool_calls: calls }),
      ...(role === "tool" && { tool_call_id: id }),
      ...(role === "tool" && names.has(id) && { tool_name: names.get(id) }),
    };
  });
}

function contentOf(content: unknown, place: string): { text: string; media: readonly string[] } {
  if (!Array.isArray(content))
    return { text: typeof content === "string" ? content : "", media: [] };
  const texts: unknown[] = [];
  const media: string[] = [];
  for (const [at, part] of content.entries()) {
    const where = `${place}.content.${at}`;
    const { type, text, refusal, image_url: image, input_audio: sound, file } = part as Fields;
    if (type === "text" || type === "refusal") texts.push(type === "text" ? text : refusal);
    else if (type === "image_url") media.push(imageOf(isFields(image) ? image.url : image, where));
    else if (type === "input_audio") media.push(soundOf(sound, where));
    else if (type === "file") addFile(isFields(file) ? file.file_data : undefined, where);
    else throw unsupported(`${where}.type`, `parts of type ${JSON.stringify(type).slice(0, 100)}`);
  }
  return { text: texts.join("\n"), media };

  function addFile(url: unknown, where: string): void {
    const data = typeof url === "string" ? dataOfUrl(url) : undefined;
    if (data?.mediaType.startsWith("image/")) media.push(data.base64);
    else if (data?.mediaType.startsWith("text/")) {
      texts.push(Buffer.from(data.base64, "base64").toString("utf8"));
    } else throw unsupported(where, "files other than texts and images, as data URLs");
  }
}

/** Ollama fetches nothing. */
function imageOf(url: unknown, place: string): string {
  const data = typeof url === "string" ? dataOfUrl(url) : undefined;
  if (data === undefined) throw unsupported(place, "images by address, only as data URLs");
  return data.base64;
}

function soundOf(sound: unknown, place: string): string {
  if (isFields(sound) && typeof sound.data === "string") return sound.data;
  throw unsupported(place, "sound without its data");
}

function callsOf(calls: unknown, place: string) {
  if (!Array.isArray(calls)) return [];
  return calls.map((call: Fields, at) => {
    if (!isFields(call.function)) {
      throw unsupported(`${place}.tool_calls.${at}`, "calls of what is no function");
    }
    const { name, arguments: text } = call.function;
    return { id: call.id, function: { index: at, name, arguments: argumentsOf(text) } };
  });
}

/** Ollama demands an object, so any other text is wrapped in one. */
function argumentsOf(text: unknown): Fields {
  if (typeof text !== "string" || text.trim() === "") return {};
  const value = jsonValue(text);
  return isFields(value) ? value : { arguments: text };
}

/** The request cannot be said in this wire. */
export function unsupported(param: string, what: string): ProviderFailure {
  const message = `Ollama does not take ${what} (${param}).`;
  return new ProviderFailure("rejected", message, { param });
}
