import { GatewayError } from "../../../lib/errors.ts";
import { isFields } from "../../../lib/json.ts";
import { type Block, isCustom, type MessagesBody } from "./request.ts";

type Fields = Readonly<Record<string, unknown>>;

/** Blocks whose form the gateway knows, and what of them has to be there. */
const REQUIRED: Readonly<Record<string, Readonly<Record<string, "string" | "object">>>> = {
  text: { text: "string" },
  image: { source: "object" },
  document: { source: "object" },
  tool_use: { id: "string", name: "string", input: "object" },
  tool_result: { tool_use_id: "string" },
  thinking: { thinking: "string" },
  redacted_thinking: { data: "string" },
  search_result: { source: "string", title: "string" },
};

/** Those there are at Anthropic are the operator's. */
const NO_FILES = "the gateway has no files of Anthropic's";

/** Members that a source of each type has. */
const SOURCES: Readonly<Record<string, readonly string[]>> = {
  base64: ["media_type", "data"],
  text: ["data"],
  url: ["url"],
  content: [],
};

/**
 * What of a request depends on its kind, as Anthropic's API has it; the schema says the rest. Throws 400,
 * naming the place.
 */
export function assertMessages(body: MessagesBody): void {
  const called = new Set<unknown>();
  for (let at = 0; at < body.messages.length; at++) {
    const { role, content } = body.messages[at]!;
    if (typeof content === "string") continue;
    for (let position = 0; position < content.length; position++) {
      const block = content[position]!;
      const place = `messages.${at}.content.${position}`;
      assertBlock(block, place);
      if (block.type === "tool_use" && role === "assistant") called.add(block.id);
      if (block.type === "tool_result" && !called.has(block.tool_use_id)) {
        throw invalid(`${place}.tool_use_id`, "there is no such tool_use before it");
      }
    }
  }
  assertTools(body);
  assertServed(body);
}

function assertBlock(block: Block, place: string): void {
  if (block.type === "container_upload") throw unsupported(`${place}.type`, NO_FILES);
  const required = Object.hasOwn(REQUIRED, block.type) ? REQUIRED[block.type]! : {};
  for (const name in required) {
    const value = block[name];
    if (value === undefined || value === null) throw invalid(`${place}.${name}`, "is required");
    const isRight = required[name] === "object" ? isFields(value) : typeof value === "string";
    if (!isRight) throw invalid(`${place}.${name}`, `must be ${required[name]}`);
  }
  if (isFields(block.source)) assertSource(block.source, `${place}.source`);
  if (block.type === "tool_result" || block.type === "search_result") {
    assertContent(block.content, `${place}.content`);
  }
}

/** Of what is nested: a result, or the content of a document. */
function assertContent(content: unknown, place: string): void {
  if (content === undefined || content === null || typeof content === "string") return;
  if (!Array.isArray(content)) throw invalid(place, "must be string or array");
  for (const [at, inner] of content.entries()) {
    if (!isFields(inner) || typeof inner.type !== "string") {
      throw invalid(`${place}.${at}.type`, "is required");
    }
    assertBlock(inner as Block, `${place}.${at}`);
  }
}

function assertSource(source: Fields, place: string): void {
  const { type } = source;
  if (type === "file") {
    throw unsupported(`${place}.type`, NO_FILES);
  }
  const members = typeof type === "string" && Object.hasOwn(SOURCES, type) ? SOURCES[type] : null;
  if (!members) throw invalid(`${place}.type`, `must be ${Object.keys(SOURCES).join(", ")}`);
  for (const name of members) {
    if (typeof source[name] !== "string") throw invalid(`${place}.${name}`, "must be string");
  }
  if (type === "content") assertContent(source.content, `${place}.content`);
}

function assertTools({ tools }: MessagesBody): void {
  tools?.forEach((tool, at) => {
    if (!isCustom(tool)) return;
    if (tool.name === undefined) throw invalid(`tools.${at}.name`, "is required");
    if (tool.input_schema === undefined) throw invalid(`tools.${at}.input_schema`, "is required");
  });
}

/** What would be broken in silence if it was left out. */
function assertServed({ inference_geo: place, tool_choice: choice, thread }: MessagesBody): void {
  if (thread !== undefined && thread !== null) throw threadUnsupported();
  if (place !== undefined && place !== null && place !== "global") {
    throw unsupported("inference_geo", "has a price of its own, which the gateway does not know");
  }
  if (choice?.type === "tool" && choice.name === undefined) {
    throw invalid("tool_choice.name", "is required");
  }
}

/**
 * The error that tells clients to send the whole conversation instead: the tool runners of Anthropic's SDKs do so by
 * themselves. The gateway stores no conversations of this API, and cannot use those of Anthropic: the hold could not
 * cover messages that it does not see, and all organizations share one account there.
 */
function threadUnsupported(): GatewayError {
  const message =
    "thread is not supported: send the full conversation in messages with every request, without thread.";
  const details = { error_code: "thread_unsupported_request", unsupported: ["thread"] };
  return new GatewayError("unsupported_parameter", message, {
    param: "thread",
    fields: { details },
  });
}

function invalid(param: string, what: string): GatewayError {
  return new GatewayError("invalid_body", `Request body field "${param}": ${what}`, { param });
}

function unsupported(param: string, what: string): GatewayError {
  return new GatewayError("unsupported_parameter", `${param} is not supported: ${what}.`, {
    param,
  });
}
