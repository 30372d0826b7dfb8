import type { ChatRequestFields } from "../providers/chat-body.ts";
import { ProviderFailure } from "../providers/interface.ts";

/** Output limit of a request without one, in tokens per choice. */
export const DEFAULT_OUTPUT_TOKENS = 4_096;
/** Longest choice, in tokens, whatever limit the request has. */
export const MAX_OUTPUT_TOKENS = 16_384;
const MAX_CHOICES = 128;
const MAX_TOOLS = 128;
const MAX_STOP_SEQUENCES = 16;

export interface SandboxMessage {
  readonly role: string;
  /** The text parts of the message. */
  readonly text: string;
  /** Number of image, audio and file parts. */
  readonly mediaParts: number;
  /** The tool calls of an assistant's message as JSON. Empty for other messages. */
  readonly toolCallsJson: string;
}

export interface SandboxTool {
  readonly name: string;
  readonly parameters: unknown;
}

type SandboxToolChoice =
  | { readonly kind: "none" | "auto" | "required" }
  | { readonly kind: "function"; readonly name: string };

/** The parts of a chat request that the sandbox uses. */
export interface SandboxRequest {
  readonly messages: readonly SandboxMessage[];
  readonly tools: readonly SandboxTool[];
  readonly toolsJson: string;
  readonly toolChoice: SandboxToolChoice;
  readonly parallelToolCalls: boolean;
  /** The schema of the answer. Undefined if the request has none. */
  readonly jsonSchema: unknown;
  readonly wantsJson: boolean;
  readonly maxTokens: number;
  readonly stop: readonly string[];
  readonly choices: number;
  readonly includeUsage: boolean;
}

type Fields = Readonly<Record<string, unknown>>;

/** Reads a request. Malformed fields count as absent. Throws ProviderFailure for an invalid tool choice. */
export function parseRequest(body: ChatRequestFields): SandboxRequest {
  const tools = allowedTools(readTools(body.tools), body.tool_choice);
  const format = asFields(body.response_format);
  return {
    messages: readMessages(body.messages),
    tools,
    toolsJson: tools.length === 0 ? "" : JSON.stringify(body.tools),
    toolChoice: readToolChoice(body.tool_choice, tools),
    parallelToolCalls: body.parallel_tool_calls !== false,
    jsonSchema: format.type === "json_schema" ? asFields(format.json_schema).schema : undefined,
    wantsJson: format.type === "json_object" || format.type === "json_schema",
    maxTokens: Math.min(
      positiveInteger(body.max_tokens ?? body.max_completion_tokens) ?? DEFAULT_OUTPUT_TOKENS,
      MAX_OUTPUT_TOKENS,
    ),
    stop: (typeof body.stop === "string" ? [body.stop] : asList(body.stop))
      .filter((sequence) => typeof sequence === "string")
      .filter((sequence) => sequence !== "")
      .slice(0, MAX_STOP_SEQUENCES),
    choices: Math.min(positiveInteger(body.n) ?? 1, MAX_CHOICES),
    includeUsage: asFields(body.stream_options).include_usage === true,
  };
}

export function readMessages(messages: unknown): SandboxMessage[] {
  return asList(messages).map(readMessage);
}

function readMessage(message: unknown): SandboxMessage {
  const { role, content, tool_calls: toolCalls } = asFields(message);
  const parts = asList(content).map(asFields);
  const texts = parts.map((part) => part.text).filter((text) => typeof text === "string");
  return {
    role: typeof role === "string" ? role : "",
    text: typeof content === "string" ? content : texts.join("\n"),
    mediaParts: parts.length - texts.length,
    toolCallsJson: Array.isArray(toolCalls) ? JSON.stringify(toolCalls) : "",
  };
}

function readTools(tools: unknown): SandboxTool[] {
  return asList(tools)
    .slice(0, MAX_TOOLS)
    .flatMap((tool) => {
      const definition = asFields(asFields(tool).function);
      const { name, parameters } = definition;
      return typeof name === "string"
        ? [{ name, parameters: parameters ?? { type: "object" } }]
        : [];
    });
}

/**
 * Returns the offered tools that a tool choice of type `allowed_tools` names. Returns all of them for another
 * type.
 */
function allowedTools(tools: SandboxTool[], choice: unknown): SandboxTool[] {
  if (asFields(choice).type !== "allowed_tools") return tools;
  const names = asList(asFields(asFields(choice).allowed_tools).tools).map(nameOf);
  return tools.filter(({ name }) => names.includes(name));
}

function readToolChoice(choice: unknown, tools: readonly SandboxTool[]): SandboxToolChoice {
  const { mode } = asFields(asFields(choice).allowed_tools);
  if (choice === "none") return { kind: "none" };
  if (choice === "required" || mode === "required") {
    if (tools.length === 0) throw wrongToolChoice("needs at least one tool");
    return { kind: "required" };
  }
  if (asFields(choice).type === "custom") throw wrongToolChoice("names no function");
  const name = nameOf(choice);
  if (typeof name !== "string") return { kind: "auto" };
  if (!tools.some((tool) => tool.name === name)) throw wrongToolChoice("names no offered tool");
  return { kind: "function", name };
}

function nameOf(choice: unknown): unknown {
  return asFields(asFields(choice).function).name;
}

function wrongToolChoice(what: string): ProviderFailure {
  return new ProviderFailure("rejected", `tool_choice ${what}`, {
    status: 400,
    param: "tool_choice",
  });
}

function positiveInteger(value: unknown): number | undefined {
  return Number.isSafeInteger(value) && (value as number) > 0 ? (value as number) : undefined;
}

function asFields(value: unknown): Fields {
  return typeof value === "object" && value !== null ? (value as Fields) : {};
}

function asList(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}
