import { GatewayError } from "../../../lib/errors.ts";
import { isFields } from "../../../lib/json.ts";
import type { ChatRequest } from "../chat-completions/request.ts";
import { assertSupported } from "../chat-completions/request-checks.ts";
import { referredId } from "./item-references.ts";
import { isProviderTool } from "./provider-tools.ts";
import {
  chosenHere,
  conversationIdOf,
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

/** Items whose form the gateway knows, and what of them has to be there. */
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

/** Calls of tools that OpenAI runs, or its clients by other means: left out of a chat, and listed. */
const FOREIGN_ITEM = /^(?:[a-z_]+_call|[a-z_]+_call_output|mcp_[a-z_]+|tool_search_[a-z]+)$/;

const MAX_TOOL_CALLS = 1_000;
/** Each is called by the gateway. */
const MAX_SERVERS = 16;

/** An item that a chat has no words for. */
export function isForeignItem(item: Item): boolean {
  return FOREIGN_ITEM.test(typeOfItem(item)) && !Object.hasOwn(ITEMS, typeOfItem(item));
}

/** By the roles of messages, what their parts may be. */
const ROLES: ReadonlySet<unknown> = new Set(["user", "assistant", "system", "developer"]);

/** Parts whose form the gateway knows; an input of a file has one of three. */
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

/** What would be broken in silence if it was left out. */
const UNSUPPORTED = ["prompt", "moderation"];

const INCLUDABLE: ReadonlySet<string> = new Set([
  "reasoning.encrypted_content",
  "message.output_text.logprobs",
  // Of an input that the client has, and of tools that no chat model runs: nothing is missing.
  "message.input_image.image_url",
  "file_search_call.results",
  "web_search_call.results",
  "web_search_call.action.sources",
  "computer_call_output.output.image_url",
  "code_interpreter_call.outputs",
]);

/**
 * What of a request depends on its kind, as the published descriptions have it; the schema says the rest.
 * Throws 400, naming the place.
 */
export function assertResponses(body: ResponsesBody): void {
  for (const field of UNSUPPORTED) {
    if (body[field] !== undefined && body[field] !== null) throw unsupported(field);
  }
  if (body.background === true && body.store === false) {
    throw invalid("background", "needs a response that is stored, and store is false");
  }
  if (conversationIdOf(body) !== undefined) {
    if (body.previous_response_id) throw invalid("conversation", "excludes previous_response_id");
    if (body.store === false) throw invalid("conversation", "needs a response that is stored");
  }
  body.include?.forEach((name, at) => {
    if (!INCLUDABLE.has(name)) throw invalid(`include.${at}`, "is not known");
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

/** What the chat call refuses too. */
export function assertChat(chat: ChatRequest): void {
  assertSupported(chat);
  const { messages } = chat;
  if (messages.every(({ role }) => role === "system" || role === "developer")) {
    if (messages.length === 0) throw invalid("input", "is required");
  }
}

/** @param place the field that holds them. Throws 400. */
export function assertItems(items: readonly Item[], place: string): void {
  for (const [at, item] of items.entries()) assertItem(item, `${place}.${at}`);
}

function assertItem(item: Item, place: string): void {
  if (referredId(item) !== undefined) return;
  const type = typeOfItem(item);
  if (!Object.hasOwn(ITEMS, type)) {
    if (FOREIGN_ITEM.test(type)) {
      // Of the operator's account.
      if (isFields(item.output) && item.output.file_id)
        throw unsupported(`${place}.output.file_id`);
      return;
    }
    throw invalid(`${place}.type`, "is not known");
  }
  assertMembers(item, ITEMS[type]!, place);
  if (type === "compaction" && summaryIn(item.encrypted_content) === undefined) {
    throw invalid(`${place}.encrypted_content`, "was not made by this gateway");
  }
  if (type === "message" && !ROLES.has(item.role)) {
    throw invalid(`${place}.role`, `must be ${[...ROLES].join(", ")}`);
  }
  assertParts(item.content, `${place}.content`);
  assertParts(item.output, `${place}.output`);
  assertParts(item.summary, `${place}.summary`);
}

function assertParts(parts: unknown, place: string): void {
  if (!Array.isArray(parts)) return;
  for (const [at, part] of parts.entries()) {
    const here = `${place}.${at}`;
    if (!isFields(part) || typeof part.type !== "string")
      throw invalid(`${here}.type`, "is required");
    if (part.type === "input_image" && typeof part.file_id === "string") {
      throw unsupported(`${here}.file_id`);
    }
    if (Object.hasOwn(PARTS, part.type)) assertMembers(part, PARTS[part.type]!, here);
    const isBare = FILE_MEMBERS.every((name) => typeof part[name] !== "string");
    if (part.type === "input_file" && isBare) {
      throw invalid(here, `needs one of ${FILE_MEMBERS.join(", ")}`);
    }
  }
}

function assertMembers(
  holder: Fields,
  members: Readonly<Record<string, MemberType>>,
  place: string,
): void {
  for (const name in members) {
    const value = holder[name];
    if (value === undefined || value === null) throw invalid(`${place}.${name}`, "is required");
    if (!isOf(value, members[name]!)) throw invalid(`${place}.${name}`, `must be ${members[name]}`);
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

const CHOSEN: ReadonlySet<string> = new Set(["function", "custom"]);

/** A choice of what is not offered would be no choice. */
function assertChoice({ tools, tool_choice: choice }: ResponsesBody): void {
  if (!choice) return;
  const offered = new Set((tools ?? []).filter(isOffered).map(({ name }) => name));
  const runHere = (tools ?? []).filter(isRunHere);
  const ofProvider = new Set((tools ?? []).filter(isProviderTool).map(({ type }) => type));
  const assertNamed = (type: string, name: string | undefined, place: string) => {
    const here = chosenHere({ type, name });
    if (here !== undefined) {
      const isThere = runHere.some((tool) => tool.type === type || chosenHere(tool) === here);
      if (!isThere) throw invalid(`${place}.type`, "is not the type of a tool");
      return;
    }
    if (ofProvider.has(type)) return;
    if (!CHOSEN.has(type)) throw unsupported(`${place}.type`, ` ${JSON.stringify(type)}`);
    if (!offered.has(name)) throw invalid(`${place}.name`, "is not the name of a tool");
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
