import { isFields } from "../../../lib/json.ts";
import type { ChatMessage, ContentPart } from "../chat-completions/request.ts";
import { parseReasoning } from "./reasoning-mark.ts";
import type { Block, Message, MessagesBody } from "./request.ts";

type Fields = Readonly<Record<string, unknown>>;
type Parts = ContentPart[];

/**
 * Introduces the images of a tool's result. Tool results of the chat call contain only text, so the images
 * follow in a message of the user.
 */
const IMAGES_OF = "What the tool call returned besides text: ";
const FAILED = "The tool call failed: ";

/**
 * Returns the prompt as messages of the chat call. Each tool result becomes a separate message before the
 * rest of the user's message, and its images follow in that message. Blocks without a counterpart are left
 * out, and their types are added to `untranslated`.
 */
export function chatMessages(
  { system, messages }: MessagesBody,
  keepsCacheControl: boolean,
  untranslated: Set<string>,
): ChatMessage[] {
  const translation = new Translation(keepsCacheControl, untranslated);
  const translated: ChatMessage[] = [];
  if (system) addTo(translated, "system", translation.partsOf(system), "\n\n");
  for (const message of messages) translation.add(translated, message);
  return translated;
}

class Translation {
  readonly #keepsCacheControl: boolean;
  readonly #untranslated: Set<string>;

  constructor(keepsCacheControl: boolean, untranslated: Set<string>) {
    this.#keepsCacheControl = keepsCacheControl;
    this.#untranslated = untranslated;
  }

  add(messages: ChatMessage[], { role, content }: Message): void {
    if (role === "assistant") messages.push(this.#answerOf(content));
    else if (role === "system") addTo(messages, "system", this.partsOf(content), "\n\n");
    else this.#addUser(messages, content);
  }

  partsOf(content: string | readonly Block[]): Parts {
    if (typeof content === "string") return [{ type: "text", text: content }];
    return content.flatMap((block) => this.#partsOfBlock(block));
  }

  #addUser(messages: ChatMessage[], content: Message["content"]): void {
    const rest: Parts = [];
    for (const block of typeof content === "string" ? [] : content) {
      if (block.type !== "tool_result") continue;
      const { message, images } = this.#resultOf(block);
      messages.push(message);
      rest.push(...images);
    }
    const others =
      typeof content === "string" ? content : content.filter(({ type }) => type !== "tool_result");
    rest.push(...this.partsOf(others));
    addTo(messages, "user", rest, "\n\n");
  }

  #resultOf(block: Block): { message: ChatMessage; images: Parts } {
    const { tool_use_id: callId, content, is_error: isError } = block;
    const parts = this.partsOf(typeof content === "string" ? content : asBlocks(content));
    const texts = parts.filter(({ type }) => type === "text").map(({ text }) => text);
    const media = parts.filter(({ type }) => type !== "text");
    const text = texts.join("\n");
    return {
      message: {
        role: "tool",
        tool_call_id: callId,
        content: isError === true ? FAILED + text : text,
        ...this.#cacheControl(block),
      },
      images: media.length === 0 ? [] : [{ type: "text", text: `${IMAGES_OF}${callId}` }, ...media],
    };
  }

  #answerOf(content: Message["content"]): ChatMessage {
    if (typeof content === "string") return { role: "assistant", content };
    const calls: Fields[] = [];
    const details: Fields[] = [];
    let reasoning = "";
    const textBlocks: Block[] = [];
    let breakpoint: Fields = {};
    for (const [index, block] of content.entries()) {
      breakpoint = { ...breakpoint, ...this.#cacheControl(block) };
      if (block.type === "tool_use") calls.push(callOf(block));
      else if (block.type === "thinking" || block.type === "redacted_thinking") {
        const { text = "", detail } = parseReasoning(block, index);
        reasoning += text;
        if (detail !== undefined) details.push(detail);
      } else textBlocks.push(block);
    }
    const text = this.partsOf(textBlocks)
      .map((part) => part.text ?? "")
      .join("");
    return {
      role: "assistant",
      content: text === "" && calls.length > 0 ? null : text,
      ...(reasoning !== "" && { reasoning }),
      ...(details.length > 0 && { reasoning_details: details }),
      ...(calls.length > 0 && { tool_calls: calls }),
      ...breakpoint,
    };
  }

  #partsOfBlock(block: Block): Parts {
    switch (block.type) {
      case "text":
        return [{ type: "text", text: String(block.text), ...this.#cacheControl(block) }];
      case "image":
        return [{ ...imagePart(block.source as Fields), ...this.#cacheControl(block) }];
      case "document":
        return this.#documentParts(block);
      case "search_result":
        return this.#searchResultParts(block);
      default:
        this.#untranslated.add(block.type);
        return [];
    }
  }

  #documentParts(block: Block): Parts {
    const source = block.source as Fields;
    const title = typeof block.title === "string" ? block.title : undefined;
    const context = typeof block.context === "string" ? `${block.context}\n` : "";
    const around = this.#cacheControl(block);
    if (source.type === "text") {
      const text = `${title === undefined ? "" : `${title}\n`}${context}${source.data}`;
      return [{ type: "text", text, ...around }];
    }
    if (source.type === "content") {
      const { content } = source;
      return this.partsOf(typeof content === "string" ? content : asBlocks(content));
    }
    const data = source.type === "url" ? source.url : dataUrl(source);
    const file = { filename: title ?? "document.pdf", file_data: data };
    const contextParts: Parts = context === "" ? [] : [{ type: "text", text: context }];
    return [...contextParts, { type: "file", file, ...around }];
  }

  #searchResultParts(block: Block): Parts {
    const texts = this.partsOf(asBlocks(block.content)).map(({ text }) => text ?? "");
    const text = [`${block.title} (${block.source})`, ...texts].join("\n");
    return [{ type: "text", text, ...this.#cacheControl(block) }];
  }

  /**
   * Returns the breakpoint without its lifetime. Only a provider of Anthropic's API, which receives the
   * original body, uses the lifetime.
   */
  #cacheControl({ cache_control: control }: Block): Fields {
    if (!this.#keepsCacheControl || !isFields(control)) return {};
    return { cache_control: { type: "ephemeral" } };
  }
}

function asBlocks(content: unknown): readonly Block[] {
  return Array.isArray(content) ? (content as Block[]) : [];
}

/** Adds a message. Plain texts are joined, because not every server accepts lists of parts. */
function addTo(messages: ChatMessage[], role: string, parts: Parts, separator: string): void {
  if (parts.length === 0) return;
  const isPlain = parts.every((part) => part.type === "text" && part.cache_control === undefined);
  const content = isPlain ? parts.map(({ text }) => text).join(separator) : parts;
  messages.push({ role, content });
}

function imagePart(source: Fields): ContentPart {
  const url = source.type === "url" ? source.url : dataUrl(source);
  return { type: "image_url", image_url: { url } };
}

function dataUrl({ media_type: type, data }: Fields): string {
  return `data:${type};base64,${data}`;
}

function callOf({ id, name, input }: Block): Fields {
  return { id, type: "function", function: { name, arguments: JSON.stringify(input) } };
}
