import { GatewayError } from "../../../lib/errors.ts";
import { isFields } from "../../../lib/json.ts";
import type { ChatRequest } from "../chat-completions/request.ts";
import { assertSupported } from "../chat-completions/request-checks.ts";
import { referredId } from "./item-references.ts";
import { isProviderTool } from "./provider-tools.ts";
import {
  conversationIdOf,
  functionOfChoice,
  type Item,
  inputItems,
  isOffered,
  isRunHere,
  type ResponsesBody,
  typeOfItem,
} from "./request.ts";
import { summaryIn } from "./summary-content.ts";

type Fields = Readonly<Record<string, unknown>>;
type MemberType = "string" | "object" | "text or parts";

/** Required members of the items whose form the gateway knows. */
const ITEMS: Readonly<Record<string, Readonly<Record<string, MemberType>>>> = {
  message: { role: "string", content: "text or parts" },
  function_call: { call_id: "string", name: "string", arguments: "string" },
  function_call_output: { call_id: "string", output: "text or parts" },
  custom_tool_call: { call_id: "string", name: "string", input: "string" },
  custom_tool_call_output: { call_id: "string", output: "text or parts" },
  reasoning: {},
  compaction: { encrypted_content: "string" },
  item_reference: { id: "string" },
};

/** Types of tool calls that OpenAI or its clients run in other ways. They are left out of a chat and listed. */
const FOREIGN_ITEM = /^(?:[a-z_]+_call|[a-z_]+_call_output|mcp_[a-z_]+|tool_search_[a-z]+)$/;

const MAX_TOOL_CALLS = 1_000;
/** Maximum number of remote servers, since the gateway calls each one. */
const MAX_SERVERS = 16;

/** Returns true for an item without a counterpart in chats. */
export function isForeignItem(item: Item): boolean {
  return FOREIGN_ITEM.test(typeOfItem(item)) && !Object.hasOwn(ITEMS, typeOfItem(item));
}

/** Roles of messages. */
const ROLES: ReadonlySet<unknown> = new Set(["user", "assistant", "system", "developer"]);

/** Required members of the parts whose form the gateway knows. A file input has one of three other members. */
const PARTS: Readonly<Record<string, Readonly<Record<string, MemberType>>>> = {
  input_text: { text: "string" },
  output_text: { text: "string" },
  text: { text: "string" },
  refusal: { refusal: "string" },
  input_image: { image_url: "string" },
  input_file: {},
  input_audio: { input_audio: "object" },
  input_video: { video_url: "string" },
};
const FILE_MEMBERS = ["file_data", "file_url", "file_id"];

/** Fields that cannot be left out without a silent change of the result. */
const UNSUPPORTED = ["prompt", "moderation"];

const INCLUDABLE: ReadonlySet<string> = new Set([
  "reasoning.encrypted_content",
  "message.output_text.logprobs",
  // Parts of the client's own input, or of tools that no chat model runs. Leaving them out loses nothing.
  "message.input_image.image_url",
  "file_search_call.results",
  "web_search_call.results",
  "web_search_call.action.sources",
  "computer_call_output.output.image_url",
  "code_interpreter_call.outputs",
]);

/**
 * Throws 400 if an item or tool lacks a member that OpenAI's published description requires for its kind, or if
 * fields are unsupported or exclude each other. The error names the parameter. The schema checks the rest.
 */
export function assertResponses(body: ResponsesBody): void {
  for (const field of UNSUPPORTED) {
    if (body[field] !== undefined && body[field] !== null) throw unsupported(field);
  }
  if (body.background === true && body.store === false) {
    throw invalid("background", "needs a stored response, but store is false");
  }
  if (conversationIdOf(body) !== undefined) {
    if (body.previous_response_id) throw invalid("conversation", "excludes previous_response_id");
    if (body.store === false) throw invalid("conversation", "needs a stored response");
  }
  body.include?.forEach((name, at) => {
    if (!INCLUDABLE.has(name)) throw invalid(`include.${at}`, "is unknown");
  });
  assertItems(inputItems(body), "input");
  if ((body.max_tool_calls ?? 0) > MAX_TOOL_CALLS) {
    throw invalid("max_tool_calls", `must be at most ${MAX_TOOL_CALLS}`);
  }
  assertTools(body);
  assertChoice(body);
  if (body.text?.format?.type === "json_schema" && body.text.format.schema === undefined) {
    throw invalid("text.format.schema", "is required");
  }
}

/** Throws 400 if the chat endpoint would also reject the request. */
export function assertChat(chat: ChatRequest): void {
  assertSupported(chat);
  const { messages } = chat;
  if (messages.every(({ role }) => role === "system" || role === "developer")) {
    if (messages.length === 0) throw invalid("input", "is required");
  }
}

/**
 * Throws 400 for an invalid item.
 *
 * @param path the path of the field with the items
 */
export function assertItems(items: readonly Item[], path: string): void {
  for (const [at, item] of items.entries()) assertItem(item, `${path}.${at}`);
}

function assertItem(item: Item, path: string): void {
  if (referredId(item) !== undefined) return;
  const type = typeOfItem(item);
  if (!Object.hasOwn(ITEMS, type)) {
    if (FOREIGN_ITEM.test(type)) {
      // Files belong to the operator's account.
      if (isFields(item.output) && item.output.file_id) throw unsupported(`${path}.output.file_id`);
      return;
    }
    throw invalid(`${path}.type`, "is unknown");
  }
  assertMembers(item, ITEMS[type]!, path);
  if (type === "compaction" && summaryIn(item.encrypted_content) === undefined) {
    throw invalid(`${path}.encrypted_content`, "was not made by this gateway");
  }
  if (type === "message" && !ROLES.has(item.role)) {
    throw invalid(`${path}.role`, `must be ${[...ROLES].join(", ")}`);
  }
  assertParts(item.content, `${path}.content`);
  assertParts(item.output, `${path}.output`);
  assertParts(item.summary, `${path}.summary`);
}

function assertParts(parts: unknown, path: string): void {
  if (!Array.isArray(parts)) return;
  for (const [at, part] of parts.entries()) {
    const partPath = `${path}.${at}`;
    if (!isFields(part) || typeof part.type !== "string")
      throw invalid(`${partPath}.type`, "is required");
    if (part.type === "input_image" && typeof part.file_id === "string") {
      throw unsupported(`${partPath}.file_id`);
    }
    if (Object.hasOwn(PARTS, part.type)) assertMembers(part, PARTS[part.type]!, partPath);
    const isBare = FILE_MEMBERS.every((name) => typeof part[name] !== "string");
    if (part.type === "input_file" && isBare) {
      throw invalid(partPath, `needs one of ${FILE_MEMBERS.join(", ")}`);
    }
  }
}

function assertMembers(
  holder: Fields,
  members: Readonly<Record<string, MemberType>>,
  path: string,
): void {
  for (const name in members) {
    const value = holder[name];
    if (value === undefined || value === null) throw invalid(`${path}.${name}`, "is required");
    if (!isOf(value, members[name]!)) throw invalid(`${path}.${name}`, `must be ${members[name]}`);
  }
}

function isOf(value: unknown, type: MemberType): boolean {
  if (type === "object") return isFields(value);
  return typeof value === "string" || (type === "text or parts" && Array.isArray(value));
}

function assertTools({ tools }: ResponsesBody): void {
  const servers = (tools ?? []).filter(({ type }) => type === "mcp").length;
  if (servers > MAX_SERVERS) throw invalid("tools", `must name at most ${MAX_SERVERS} servers`);
  tools?.forEach((tool, at) => {
    if (isOffered(tool)) {
      if (tool.name === undefined) throw invalid(`tools.${at}.name`, "is required");
    } else if (!isProviderTool(tool)) {
      throw unsupported(`tools.${at}.type`, ` ${JSON.stringify(tool.type.slice(0, 100))}`);
    }
  });
}

const CALLERS_TOOLS: ReadonlySet<string> = new Set(["function", "custom"]);

/** Throws 400 for a choice of a tool that is not offered. */
function assertChoice({ tools, tool_choice: choice }: ResponsesBody): void {
  if (!choice) return;
  const offered = new Set((tools ?? []).filter(isOffered).map(({ name }) => name));
  const runHere = (tools ?? []).filter(isRunHere);
  const ofProvider = new Set((tools ?? []).filter(isProviderTool).map(({ type }) => type));
  const assertNamed = (type: string, name: string | undefined, path: string) => {
    const functionName = functionOfChoice({ type, name });
    if (functionName !== undefined) {
      const isThere = runHere.some(
        (tool) => tool.type === type || functionOfChoice(tool) === functionName,
      );
      if (!isThere) throw invalid(`${path}.type`, "is not the type of a tool");
      return;
    }
    if (ofProvider.has(type)) return;
    if (!CALLERS_TOOLS.has(type)) throw unsupported(`${path}.type`, ` ${JSON.stringify(type)}`);
    if (!offered.has(name)) throw invalid(`${path}.name`, "is not the name of a tool");
  };
  if (typeof choice === "string") {
    if (choice === "required" && offered.size + ofProvider.size === 0)
      throw invalid("tool_choice", "needs tools");
  } else if (choice.type === "allowed_tools") {
    const { tools: allowed = [] } = choice;
    if (allowed.length === 0) throw invalid("tool_choice.tools", "is required");
    for (const [at, { type, name }] of allowed.entries()) {
      assertNamed(type, name, `tool_choice.tools.${at}`);
    }
  } else assertNamed(choice.type, choice.name, "tool_choice");
}

function invalid(param: string, what: string): GatewayError {
  return new GatewayError("invalid_body", `Request body field "${param}": ${what}`, { param });
}

function unsupported(param: string, what = ""): GatewayError {
  return new GatewayError("unsupported_parameter", `${param}${what} is not supported.`, {
    param,
  });
}
