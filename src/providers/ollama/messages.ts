import { dataOfUrl } from "../../lib/data-url.ts";
import { isFields, jsonValue } from "../../lib/json.ts";
import { ProviderFailure } from "../interface.ts";

type Fields = Readonly<Record<string, unknown>>;

/**
 * Converts OpenAI's messages to Ollama's (https://docs.ollama.com/api/chat). The texts of a message become
 * one content, its images and audio are separate fields in base64, and tool results name their function.
 * Throws ProviderFailure that names a part without a counterpart.
 */
export function ollamaMessages(messages: readonly Fields[]): Fields[] {
  /** Names of called functions by call id. */
  const names = new Map<unknown, unknown>();
  return messages.map((message, index) => {
    const path = `messages.${index}`;
    const { role, reasoning, reasoning_content: reasoningContent, tool_call_id: id } = message;
    if (role === "function") throw unsupported(`${path}.role`, "messages of the role function");
    const calls = callsOf(message.tool_calls, path);
    for (const call of calls) names.set(call.id, call.function.name);
    const { text, media } = contentOf(message.content, path);
    const thinking = role === "assistant" ? (reasoning ?? reasoningContent) : undefined;
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

function contentOf(content: unknown, path: string): { text: string; media: readonly string[] } {
  if (!Array.isArray(content))
    return { text: typeof content === "string" ? content : "", media: [] };
  const texts: unknown[] = [];
  const media: string[] = [];
  for (const [index, part] of content.entries()) {
    const partPath = `${path}.content.${index}`;
    const { type, text, refusal, image_url: image, input_audio: audio, file } = part as Fields;
    if (type === "text" || type === "refusal") texts.push(type === "text" ? text : refusal);
    else if (type === "image_url")
      media.push(imageOf(isFields(image) ? image.url : image, partPath));
    else if (type === "input_audio") media.push(audioOf(audio, partPath));
    else if (type === "file") addFile(isFields(file) ? file.file_data : undefined, partPath);
    else
      throw unsupported(`${partPath}.type`, `parts of type ${JSON.stringify(type).slice(0, 100)}`);
  }
  return { text: texts.join("\n"), media };

  function addFile(url: unknown, partPath: string): void {
    const data = typeof url === "string" ? dataOfUrl(url) : undefined;
    if (data?.mediaType.startsWith("image/")) media.push(data.base64);
    else if (data?.mediaType.startsWith("text/")) {
      texts.push(Buffer.from(data.base64, "base64").toString("utf8"));
    } else throw unsupported(partPath, "files other than texts and images, as data URLs");
  }
}

/** Returns an image in base64. Throws for web URLs, because Ollama does not fetch them. */
function imageOf(url: unknown, path: string): string {
  const data = typeof url === "string" ? dataOfUrl(url) : undefined;
  if (data === undefined) throw unsupported(path, "images other than data URLs");
  return data.base64;
}

function audioOf(audio: unknown, path: string): string {
  if (isFields(audio) && typeof audio.data === "string") return audio.data;
  throw unsupported(path, "audio without data");
}

function callsOf(calls: unknown, path: string) {
  if (!Array.isArray(calls)) return [];
  return calls.map((call: Fields, index) => {
    if (!isFields(call.function)) {
      throw unsupported(`${path}.tool_calls.${index}`, "calls that are not functions");
    }
    const { name, arguments: text } = call.function;
    return { id: call.id, function: { index: index, name, arguments: argumentsOf(text) } };
  });
}

/** Returns the arguments of a call. Ollama requires an object, so any other text is wrapped in one. */
function argumentsOf(text: unknown): Fields {
  if (typeof text !== "string" || text.trim() === "") return {};
  const value = jsonValue(text);
  return isFields(value) ? value : { arguments: text };
}

/** Returns the failure for a request that Ollama's API cannot express. */
export function unsupported(param: string, what: string): ProviderFailure {
  const message = `Ollama does not support ${what} (${param}).`;
  return new ProviderFailure("rejected", message, { param });
}
