import { isFields } from "../../../lib/json.ts";
import { functionOfTool } from "../../tools/mcp/tool-names.ts";
import type { ChatMessage, ContentPart } from "../chat-completions/request.ts";
import type { NamespaceTools } from "./namespace-tools.ts";
import { detailsIn } from "./reasoning-content.ts";
import { type Item, type Part, typeOfItem } from "./request.ts";

type Fields = Readonly<Record<string, unknown>>;

/**
 * Introduces the media of a tool's output. Tool results of the chat call contain only text, so the media
 * follow in a message of the user.
 */
const MEDIA_OF = "What the tool call returned besides text: ";
const SEPARATOR = "\n\n";
/** Represents any tool of a remote server: see `functionOfChoice`. */
const ANY_OF_SERVERS = null;

/** One message of the assistant. The items of one turn arrive separately. */
interface Answer {
  readonly texts: string[];
  readonly calls: Fields[];
  readonly details: Fields[];
  /** Results of tools that the gateway runs. They follow the message. */
  readonly outputs: ChatMessage[];
  reasoning: string;
}

/**
 * Returns items as messages of the chat call. The assistant's reasoning, texts and calls become one message.
 * Each tool output becomes a message, and its media follow in a message of the user. Types without a
 * counterpart are left out and added to `untranslated`.
 * @param runHere functions that replace the tools which the gateway runs for this request
 * @param namespaces returns the function names of calls
 */
export function chatMessages(
  items: readonly Item[],
  untranslated: Set<string>,
  runHere: ReadonlySet<unknown>,
  namespaces: NamespaceTools,
): ChatMessage[] {
  const conversation = new Conversation(untranslated, runHere, namespaces);
  for (const item of items) conversation.add(item);
  return conversation.end();
}

class Conversation {
  readonly #messages: ChatMessage[] = [];
  readonly #untranslated: Set<string>;
  #answer: Answer | undefined;
  /** Calls that the caller was asked to approve, by id. */
  readonly #approvalRequests = new Map<unknown, Item>();
  /** Media of the outputs so far. Further outputs precede them. */
  #media: ContentPart[] = [];

  readonly #runHere: ReadonlySet<unknown>;
  readonly #namespaces: NamespaceTools;

  constructor(
    untranslated: Set<string>,
    runHere: ReadonlySet<unknown>,
    namespaces: NamespaceTools,
  ) {
    this.#untranslated = untranslated;
    this.#runHere = runHere;
    this.#namespaces = namespaces;
  }

  add(item: Item): void {
    switch (typeOfItem(item)) {
      case "message":
        if (item.role === "assistant") this.#addAssistantText(item);
        else this.#addInput(item);
        return;
      case "function_call":
        this.#addCall(item, item.arguments as string);
        return;
      case "custom_tool_call":
        this.#addCall(item, JSON.stringify({ input: item.input }));
        return;
      case "function_call_output":
      case "custom_tool_call_output":
        this.#addOutput(item);
        return;
      case "reasoning":
        this.#addReasoning(item);
        return;
      case "mcp_approval_request":
        this.#approvalRequests.set(item.id, item);
        return;
      case "mcp_approval_response":
        this.#addDecision(item);
        return;
      case "mcp_list_tools":
        return;
      default:
        this.#addRun(item);
    }
  }

  /** Adds the result of a denied call. An approved call has run already, or runs before the model continues. */
  #addDecision({ approval_request_id: id, approve, reason }: Item): void {
    const request = this.#approvalRequests.get(id);
    if (request === undefined || approve === true) return;
    const why = typeof reason === "string" && reason !== "" ? `: ${reason}` : ".";
    const output = `The user did not approve this call${why}`;
    this.#addRun({ ...request, type: "mcp_call", output });
  }

  end(): ChatMessage[] {
    this.#endAnswer();
    this.#endMedia();
    return this.#messages;
  }

  #current(): Answer {
    this.#endMedia();
    this.#answer ??= { texts: [], calls: [], details: [], outputs: [], reasoning: "" };
    return this.#answer;
  }

  #addCall(item: Item, json: string): void {
    const name = this.#namespaces.functionOf(item);
    this.#current().calls.push(callOf({ call_id: item.call_id, name }, json));
  }

  /**
   * Adds a run of a tool that is offered again. A run without results is left out, because its result is part
   * of the model's answer.
   */
  #addRun(item: Item): void {
    const { name, json, output } = runOf(item) ?? {};
    const isOffered = this.#runHere.has(item.type === "mcp_call" ? ANY_OF_SERVERS : name);
    if (name === undefined || !isOffered) {
      this.#untranslated.add(`input.${item.type}`);
    } else if (output !== undefined && typeof item.id === "string") {
      const { calls, outputs } = this.#current();
      calls.push(callOf({ call_id: item.id, name }, json!));
      outputs.push({ role: "tool", tool_call_id: item.id, content: output });
    }
  }

  /** Ends the message if it has tool outputs, because later items belong to another step. */
  #endRuns(): void {
    if (this.#answer !== undefined && this.#answer.outputs.length > 0) this.#endAnswer();
  }

  #addAssistantText({ content }: Item): void {
    this.#endRuns();
    const texts = this.#partsOf(content).map(({ text }) => text ?? "");
    if (texts.length > 0) this.#current().texts.push(texts.join(""));
  }

  #addInput({ role, content }: Item): void {
    this.#endAnswer();
    const parts = this.#partsOf(content);
    if (role !== "user") this.#endMedia();
    const all = [...this.#media, ...parts];
    this.#media = [];
    this.#push(role as string, all);
  }

  #addOutput({ call_id: callId, output }: Item): void {
    this.#endAnswer();
    const parts = this.#partsOf(output);
    const text = parts.filter(({ type }) => type === "text").map((part) => part.text);
    const media = parts.filter(({ type }) => type !== "text");
    this.#messages.push({ role: "tool", tool_call_id: callId, content: text.join("\n") });
    if (media.length > 0)
      this.#media.push({ type: "text", text: `${MEDIA_OF}${callId}` }, ...media);
  }

  #addReasoning({ summary, content, encrypted_content: encrypted }: Item): void {
    this.#endRuns();
    const answer = this.#current();
    const texts = [...asParts(summary), ...asParts(content)].map(({ text }) => text);
    const reasoningText = texts.filter((text) => typeof text === "string").join(SEPARATOR);
    answer.reasoning +=
      answer.reasoning === "" || reasoningText === "" ? reasoningText : SEPARATOR + reasoningText;
    answer.details.push(...(detailsIn(encrypted) ?? []));
  }

  #endAnswer(): void {
    const answer = this.#answer;
    this.#answer = undefined;
    if (answer === undefined) return;
    const { texts, calls, details, outputs, reasoning } = answer;
    // Reasoning without a text or call. No provider format has a message for it.
    if (texts.length + calls.length === 0) return;
    this.#messages.push({
      role: "assistant",
      content: texts.length === 0 ? null : texts.join(SEPARATOR),
      ...(reasoning !== "" && { reasoning }),
      ...(details.length > 0 && { reasoning_details: details }),
      ...(calls.length > 0 && { tool_calls: calls }),
    });
    this.#messages.push(...outputs);
  }

  #endMedia(): void {
    const media = this.#media;
    this.#media = [];
    this.#push("user", media);
  }

  /** Adds a message. Plain texts are joined, because not every server accepts lists of parts. */
  #push(role: string, parts: readonly ContentPart[]): void {
    if (parts.length === 0) return;
    const isPlain = parts.every(({ type }) => type === "text");
    const content = isPlain ? parts.map(({ text }) => text).join(SEPARATOR) : parts;
    this.#messages.push({ role, content });
  }

  #partsOf(content: unknown): ContentPart[] {
    if (typeof content === "string") return [{ type: "text", text: content }];
    return asParts(content).flatMap((part) => this.#partOf(part));
  }

  #partOf(part: Part): ContentPart[] {
    switch (part.type) {
      case "input_text":
      case "output_text":
      case "text":
        return [{ type: "text", text: part.text as string }];
      case "refusal":
        return [{ type: "text", text: part.refusal as string }];
      case "input_image":
        return [{ type: "image_url", image_url: imageOf(part) }];
      case "input_file":
        return [{ type: "file", file: fileOf(part) }];
      case "input_audio":
        return [{ type: "input_audio", input_audio: part.input_audio }];
      case "input_video":
        return [{ type: "video_url", video_url: { url: part.video_url } }];
      default:
        this.#untranslated.add(`input.content.${part.type}`);
        return [];
    }
  }
}

function asParts(content: unknown): readonly Part[] {
  return Array.isArray(content) ? (content as Part[]).filter(isFields) : [];
}

/** Returns the call that an item shows as a run, with its result if the item contains one. */
function runOf(item: Item): { name: string; json: string; output?: string } | undefined {
  const { results, outputs, queries, code } = item;
  switch (typeOfItem(item)) {
    case "file_search_call": {
      const [query = ""] = Array.isArray(queries) ? queries : [];
      return { name: "file_search", json: JSON.stringify({ query }), ...resultsIn(results) };
    }
    case "web_search_call": {
      const { query = "" } = isFields(item.action) ? item.action : {};
      return { name: "web_search", json: JSON.stringify({ query }), ...resultsIn(results) };
    }
    case "code_interpreter_call":
      return { name: "code_interpreter", json: JSON.stringify({ code }), ...resultsIn(outputs) };
    case "mcp_call": {
      const { server_label: label, name, arguments: json, output, error } = item;
      const result = output ?? error ?? "";
      return {
        name: functionOfTool(String(label), String(name)),
        json: typeof json === "string" ? json : "{}",
        output: typeof result === "string" ? result : JSON.stringify(result),
      };
    }
    default:
      return undefined;
  }
}

function resultsIn(results: unknown): { readonly output?: string } {
  return Array.isArray(results) ? { output: JSON.stringify(results) } : {};
}

function callOf({ call_id: id, name }: Item, json: string): Fields {
  return { id, type: "function", function: { name, arguments: json } };
}

function imageOf({ image_url: url, detail }: Part): Fields {
  return typeof detail === "string" ? { url, detail } : { url };
}

function fileOf({ file_id: id, filename, file_data: data, file_url: url }: Part): Fields {
  if (typeof id === "string") return { file_id: id };
  return {
    ...(typeof filename === "string" && { filename }),
    file_data: data ?? url,
  };
}
