import { GatewayError } from "../../../lib/errors.ts";
import { isFields } from "../../../lib/json.ts";
import { type Block, isCustom, type MessagesBody } from "./request.ts";

type Fields = Readonly<Record<string, unknown>>;

/** Required members of the blocks whose form the gateway knows. */
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

/** Files at Anthropic belong to the operator's account. */
const NO_FILES = "the gateway has no access to files at Anthropic";

/** Required members of a source, by its type. */
const SOURCES: Readonly<Record<string, readonly string[]>> = {
  base64: ["media_type", "data"],
  text: ["data"],
  url: ["url"],
  content: [],
};

/**
 * Throws 400 if a message or tool lacks a member that Anthropic's API requires for its kind, if a tool result
 * has no call, or if a field is unsupported. The error names the parameter. The schema checks the rest.
 */
export function assertMessages(body: MessagesBody): void {
  const called = new Set<unknown>();
  for (let at = 0; at < body.messages.length; at++) {
    const { role, content } = body.messages[at]!;
    if (typeof content === "string") continue;
    for (let position = 0; position < content.length; position++) {
      const block = content[position]!;
      const path = `messages.${at}.content.${position}`;
      assertBlock(block, path);
      if (block.type === "tool_use" && role === "assistant") called.add(block.id);
      if (block.type === "tool_result" && !called.has(block.tool_use_id)) {
        throw invalid(`${path}.tool_use_id`, "there is no such tool_use before this block");
      }
    }
  }
  assertTools(body);
  assertServed(body);
}

function assertBlock(block: Block, path: string): void {
  if (block.type === "container_upload") throw unsupported(`${path}.type`, NO_FILES);
  const required = Object.hasOwn(REQUIRED, block.type) ? REQUIRED[block.type]! : {};
  for (const name in required) {
    const value = block[name];
    if (value === undefined || value === null) throw invalid(`${path}.${name}`, "is required");
    const isRight = required[name] === "object" ? isFields(value) : typeof value === "string";
    if (!isRight) throw invalid(`${path}.${name}`, `must be ${required[name]}`);
  }
  if (isFields(block.source)) assertSource(block.source, `${path}.source`);
  if (block.type === "tool_result" || block.type === "search_result") {
    assertContent(block.content, `${path}.content`);
  }
}

/** Checks nested content: a tool result, or the content of a document. */
function assertContent(content: unknown, path: string): void {
  if (content === undefined || content === null || typeof content === "string") return;
  if (!Array.isArray(content)) throw invalid(path, "must be string or array");
  for (const [at, inner] of content.entries()) {
    if (!isFields(inner) || typeof inner.type !== "string") {
      throw invalid(`${path}.${at}.type`, "is required");
    }
    assertBlock(inner as Block, `${path}.${at}`);
  }
}

function assertSource(source: Fields, path: string): void {
  const { type } = source;
  if (type === "file") {
    throw unsupported(`${path}.type`, NO_FILES);
  }
  const members = typeof type === "string" && Object.hasOwn(SOURCES, type) ? SOURCES[type] : null;
  if (!members) throw invalid(`${path}.type`, `must be ${Object.keys(SOURCES).join(", ")}`);
  for (const name of members) {
    if (typeof source[name] !== "string") throw invalid(`${path}.${name}`, "must be string");
  }
  if (type === "content") assertContent(source.content, `${path}.content`);
}

function assertTools({ tools }: MessagesBody): void {
  tools?.forEach((tool, at) => {
    if (!isCustom(tool)) return;
    if (tool.name === undefined) throw invalid(`tools.${at}.name`, "is required");
    if (tool.input_schema === undefined) throw invalid(`tools.${at}.input_schema`, "is required");
  });
}

/** Throws 400 for fields that cannot be left out without a silent change of the result. */
function assertServed({ inference_geo: geo, tool_choice: choice, thread }: MessagesBody): void {
  if (thread !== undefined && thread !== null) throw threadUnsupported();
  if (geo !== undefined && geo !== null && geo !== "global") {
    throw unsupported("inference_geo", "has a separate price, which the gateway does not know");
  }
  if (choice?.type === "tool" && choice.name === undefined) {
    throw invalid("tool_choice.name", "is required");
  }
}

/**
 * Returns an error that makes clients send the full conversation instead, as the tool runners of Anthropic's
 * SDKs do. The gateway stores no conversations of this API. It cannot use those of Anthropic: the hold could
 * not cover messages that it does not see, and all organizations share one account there.
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
