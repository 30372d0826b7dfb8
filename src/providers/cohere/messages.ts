import { dataOfUrl } from "../../lib/data-url.ts";
import { isFields } from "../../lib/json.ts";
import { ProviderFailure } from "../interface.ts";
import { keptReasoning } from "./reasoning-details.ts";

type Fields = Readonly<Record<string, unknown>>;

export interface Conversation {
  readonly messages: readonly Fields[];
  /** Texts that came as files. */
  readonly documents: readonly Fields[];
}

/**
 * OpenAI's messages as Cohere's (https://docs.cohere.com/v2/reference/chat): system and developer messages,
 * wherever they stand, become the first message in their order, because Cohere refuses them elsewhere. Files of
 * text become documents, which answers cite. Throws ProviderFailure that names what has no counterpart.
 */
export function conversationOf(messages: readonly Fields[]): Conversation {
  const system: Fields[] = [];
  const turns: Fields[] = [];
  const documents: Fields[] = [];
  for (const [at, message] of messages.entries()) {
    const place = `messages.${at}`;
    switch (message.role) {
      case "system":
      case "developer":
        system.push(...textsOf(message.content, `${place}.content`));
        break;
      case "assistant":
        turns.push(...answerOf(message, place));
        break;
      case "tool":
        turns.push(resultOf(message, place));
        break;
      case "function":
        throw unsupported(`${place}.role`, "messages of the role function");
      default:
        turns.push({ role: "user", content: contentOf(message.content, place, documents) });
    }
  }
  if (system.length === 0) return { messages: turns, documents };
  const content = system.length === 1 ? system[0]!.text : system;
  return { messages: [{ role: "system", content }, ...turns], documents };
}

/** What the user says, in parts where it came in parts. */
function contentOf(content: unknown, place: string, documents: Fields[]): unknown {
  if (!Array.isArray(content)) return content;
  return content.flatMap((part: Fields, at) => {
    const where = `${place}.content.${at}`;
    if (part.type === "text") return [{ type: "text", text: part.text }];
    if (part.type === "image_url") return [imageOf(part.image_url, where)];
    if (part.type !== "file") throw unsupported(`${where}.type`, `parts of type ${shown(part)}`);
    documents.push(documentOf(isFields(part.file) ? part.file : {}, where));
    return [];
  });
}

function imageOf(image: unknown, place: string): Fields {
  const { url, detail } = isFields(image) ? image : { url: image, detail: undefined };
  if (typeof url !== "string") throw unsupported(place, "an image without a URL");
  return { type: "image_url", image_url: { url, ...(typeof detail === "string" && { detail }) } };
}

function documentOf({ file_data: file, filename }: Fields, place: string): Fields {
  const data = typeof file === "string" ? dataOfUrl(file) : undefined;
  if (data === undefined) throw unsupported(place, "files other than in file_data, as a data URL");
  if (!data.mediaType.startsWith("text/") && data.mediaType !== "application/json") {
    throw unsupported(place, `files of type ${data.mediaType.slice(0, 100)}`);
  }
  const title = typeof filename === "string" ? { title: filename } : {};
  return { data: { ...title, text: Buffer.from(data.base64, "base64").toString("utf8") } };
}

/** An earlier answer: thinking, what was said, the plan, and calls. One without any of these is left out. */
function answerOf(message: Fields, place: string): Fields[] {
  const { thinking, plan } = keptReasoning(message.reasoning_details);
  const said = textsOf(message.content, `${place}.content`);
  if (said.length === 0 && typeof message.refusal === "string" && message.refusal !== "") {
    said.push({ type: "text", text: message.refusal });
  }
  const calls = callsOf(message.tool_calls, place);
  const blocks = [...thinking.map((text) => ({ type: "thinking", thinking: text })), ...said];
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

function callsOf(calls: unknown, place: string): Fields[] {
  if (!Array.isArray(calls)) return [];
  return calls.map((call: Fields, at) => {
    if (!isFields(call.function)) {
      throw unsupported(`${place}.tool_calls.${at}`, "calls of what is no function");
    }
    const { name, arguments: text } = call.function;
    const json = text === undefined || text === "" ? "{}" : text;
    return { id: call.id, type: "function", function: { name, arguments: json } };
  });
}

function resultOf({ tool_call_id: id, content }: Fields, place: string): Fields {
  const result = typeof content === "string" ? content : textsOf(content, `${place}.content`);
  return { role: "tool", tool_call_id: id, content: result };
}

/** Content of a kind that holds text alone. Text that is empty says nothing. */
function textsOf(content: unknown, place: string): Fields[] {
  if (typeof content === "string") return content === "" ? [] : [{ type: "text", text: content }];
  if (!Array.isArray(content)) return [];
  return content.flatMap((part: Fields, at) => {
    const text = part.type === "refusal" ? part.refusal : part.text;
    if (part.type !== "text" && part.type !== "refusal") {
      throw unsupported(`${place}.${at}.type`, `parts of type ${shown(part)} here`);
    }
    return text === "" ? [] : [{ type: "text", text }];
  });
}

function shown({ type }: Fields): string {
  return JSON.stringify(String(type).slice(0, 100));
}

/** The request cannot be said in this wire. */
export function unsupported(param: string, what: string): ProviderFailure {
  const message = `Cohere's models do not take ${what} (${param}).`;
  return new ProviderFailure("rejected", message, { param });
}
