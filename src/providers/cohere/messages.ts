import { dataOfUrl } from "../../lib/data-url.ts";
import { isFields } from "../../lib/json.ts";
import { ProviderFailure } from "../interface.ts";
import { earlierReasoning } from "./reasoning-details.ts";

type Fields = Readonly<Record<string, unknown>>;

export interface Conversation {
  readonly messages: readonly Fields[];
  /** The texts of files in the messages. */
  readonly documents: readonly Fields[];
}

/**
 * Converts OpenAI's messages to Cohere's (https://docs.cohere.com/v2/reference/chat). System and developer
 * messages, at any position, become the first message in their order, because Cohere rejects them elsewhere.
 * Text files become documents, which answers cite. Throws ProviderFailure that names a part without a
 * counterpart.
 */
export function conversationOf(messages: readonly Fields[]): Conversation {
  const system: Fields[] = [];
  const turns: Fields[] = [];
  const documents: Fields[] = [];
  for (const [index, message] of messages.entries()) {
    const path = `messages.${index}`;
    switch (message.role) {
      case "system":
      case "developer":
        system.push(...textsOf(message.content, `${path}.content`));
        break;
      case "assistant":
        turns.push(...answerOf(message, path));
        break;
      case "tool":
        turns.push(resultOf(message, path));
        break;
      case "function":
        throw unsupported(`${path}.role`, "messages of the role function");
      default:
        turns.push({ role: "user", content: contentOf(message.content, path, documents) });
    }
  }
  if (system.length === 0) return { messages: turns, documents };
  const content = system.length === 1 ? system[0]!.text : system;
  return { messages: [{ role: "system", content }, ...turns], documents };
}

/** Returns the content of a user message, in parts if it came in parts. */
function contentOf(content: unknown, path: string, documents: Fields[]): unknown {
  if (!Array.isArray(content)) return content;
  return content.flatMap((part: Fields, index) => {
    const partPath = `${path}.content.${index}`;
    if (part.type === "text") return [{ type: "text", text: part.text }];
    if (part.type === "image_url") return [imageOf(part.image_url, partPath)];
    if (part.type !== "file") throw unsupported(`${partPath}.type`, `parts of type ${shown(part)}`);
    documents.push(documentOf(isFields(part.file) ? part.file : {}, partPath));
    return [];
  });
}

function imageOf(image: unknown, path: string): Fields {
  const { url, detail } = isFields(image) ? image : { url: image, detail: undefined };
  if (typeof url !== "string") throw unsupported(path, "an image without a URL");
  return { type: "image_url", image_url: { url, ...(typeof detail === "string" && { detail }) } };
}

function documentOf({ file_data: file, filename }: Fields, path: string): Fields {
  const data = typeof file === "string" ? dataOfUrl(file) : undefined;
  if (data === undefined) throw unsupported(path, "files other than in file_data, as a data URL");
  if (!data.mediaType.startsWith("text/") && data.mediaType !== "application/json") {
    throw unsupported(path, `files of type ${data.mediaType.slice(0, 100)}`);
  }
  const title = typeof filename === "string" ? { title: filename } : {};
  return { data: { ...title, text: Buffer.from(data.base64, "base64").toString("utf8") } };
}

/**
 * Returns an earlier answer: thinking, text, the plan, and calls. Returns an empty list for an answer without
 * any of these.
 */
function answerOf(message: Fields, path: string): Fields[] {
  const { thinking, plan } = earlierReasoning(message.reasoning_details);
  const texts = textsOf(message.content, `${path}.content`);
  if (texts.length === 0 && typeof message.refusal === "string" && message.refusal !== "") {
    texts.push({ type: "text", text: message.refusal });
  }
  const calls = callsOf(message.tool_calls, path);
  const blocks = [...thinking.map((text) => ({ type: "thinking", thinking: text })), ...texts];
  if (blocks.length === 0 && calls.length === 0) return [];
  return [
    {
      role: "assistant",
      ...(blocks.length > 0 && { content: blocks }),
      ...(plan !== "" && { tool_plan: plan }),
      ...(calls.length > 0 && { tool_calls: calls }),
    },
  ];
}

function callsOf(calls: unknown, path: string): Fields[] {
  if (!Array.isArray(calls)) return [];
  return calls.map((call: Fields, index) => {
    if (!isFields(call.function)) {
      throw unsupported(`${path}.tool_calls.${index}`, "calls that are not functions");
    }
    const { name, arguments: text } = call.function;
    const json = text === undefined || text === "" ? "{}" : text;
    return { id: call.id, type: "function", function: { name, arguments: json } };
  });
}

function resultOf({ tool_call_id: id, content }: Fields, path: string): Fields {
  const result = typeof content === "string" ? content : textsOf(content, `${path}.content`);
  return { role: "tool", tool_call_id: id, content: result };
}

/** Returns the texts of content that can contain only text. Skips empty texts. */
function textsOf(content: unknown, path: string): Fields[] {
  if (typeof content === "string") return content === "" ? [] : [{ type: "text", text: content }];
  if (!Array.isArray(content)) return [];
  return content.flatMap((part: Fields, index) => {
    const text = part.type === "refusal" ? part.refusal : part.text;
    if (part.type !== "text" && part.type !== "refusal") {
      throw unsupported(`${path}.${index}.type`, `parts of type ${shown(part)} here`);
    }
    return text === "" ? [] : [{ type: "text", text }];
  });
}

function shown({ type }: Fields): string {
  return JSON.stringify(String(type).slice(0, 100));
}

/** Returns the failure for a request that Cohere's API cannot express. */
export function unsupported(param: string, what: string): ProviderFailure {
  const message = `Cohere's models do not support ${what} (${param}).`;
  return new ProviderFailure("rejected", message, { param });
}
