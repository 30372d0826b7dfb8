import { isFields } from "../../../lib/json.ts";
import type { ItemsRequest } from "../../../providers/chat-body.ts";
import { turnItems } from "./item-references.ts";
import { DEFAULT_PROVIDER_RUNS, isSentToProvider, providerToolUse } from "./provider-tools.ts";
import { detailsIn } from "./reasoning-content.ts";
import { type Item, type Part, type ResponsesTurn, type Tool, typeOfItem } from "./request.ts";

type Fields = Readonly<Record<string, unknown>>;

/** Values of `include` that concern tools which a provider runs. */
const RUN_INCLUDES = /^(?:web_search|file_search|code_interpreter|computer)_call/;

/**
 * Returns a turn in the form of OpenAI's Responses API, for parts that a chat cannot express.
 *
 * @param leftOut `tools.` and the type of each tool that the candidate does not support
 */
export function itemForm(turn: ResponsesTurn, leftOut: readonly string[]): ItemsRequest {
  const { body } = turn;
  const sent = (body.tools ?? []).filter((tool) => isSent(tool, leftOut));
  const hasServers = sent.some(({ type }) => type === "mcp");
  const items = turnItems(turn).flatMap((item) => sentItem(item, hasServers));
  const { instructions, tool_choice: choice, include } = body;
  const instructionItems = instructions
    ? [{ type: "message", role: "system", content: instructions }]
    : [];
  const used = providerToolUse({ ...body, tools: sent }, false);
  return {
    input: [...instructionItems, ...items],
    tools: sent.map(sentTool),
    toolChoice: sent.length === 0 ? undefined : choice,
    include: used === undefined ? [] : (include ?? []).filter((name) => RUN_INCLUDES.test(name)),
    maxToolCalls:
      used !== undefined && used.maxCalls > 0
        ? (body.max_tool_calls ?? DEFAULT_PROVIDER_RUNS)
        : undefined,
    truncation: used?.computer !== undefined ? "auto" : undefined,
  };
}

function isSent(tool: Tool, leftOut: readonly string[]): boolean {
  if (tool.type === "function" || tool.type === "custom") return true;
  return isSentToProvider(tool) && !leftOut.includes(`tools.${tool.type}`);
}

function sentTool(tool: Tool): Fields {
  const { type, name, description, parameters, strict, format } = tool;
  const shared = { type, name, ...(typeof description === "string" && { description }) };
  if (type === "custom") return { ...shared, ...(format && { format }) };
  if (type !== "function") return tool;
  return {
    ...shared,
    parameters: parameters ?? { type: "object", properties: {} },
    // The default of chats, in which functions are strict only if they say so.
    strict: strict ?? false,
  };
}

function sentItem(item: Item, hasServers: boolean): Fields[] {
  const type = typeOfItem(item);
  switch (type) {
    case "message": {
      const isAssistant = item.role === "assistant";
      const content = isAssistant ? assistantParts(item.content) : inputContent(item.content);
      if (content.length === 0) return [];
      const phase = typeof item.phase === "string" ? { phase: item.phase } : {};
      return [{ type, role: item.role, content, ...phase }];
    }
    case "function_call": {
      const { call_id, name, arguments: json, namespace } = item;
      return [{ type, call_id, name, arguments: json, ...(namespace ? { namespace } : {}) }];
    }
    case "custom_tool_call": {
      const { call_id, name, input, namespace } = item;
      return [{ type, call_id, name, input, ...(namespace ? { namespace } : {}) }];
    }
    case "function_call_output":
    case "custom_tool_call_output":
      return [{ type, call_id: item.call_id, output: inputContent(item.output) }];
    case "reasoning":
      return [{ type, details: detailsIn(item.encrypted_content) ?? [] }];
    case "mcp_list_tools":
      // Kept only if the request names a server.
      return hasServers ? [item] : [];
    default:
      return [item];
  }
}

function assistantParts(content: unknown): Fields[] {
  if (typeof content === "string") return [{ type: "output_text", text: content }];
  return partsOf(content).flatMap(({ type, text, refusal }): Fields[] => {
    if (type === "refusal") return [{ type, refusal }];
    return typeof text === "string" && text !== "" ? [{ type: "output_text", text }] : [];
  });
}

function inputContent(content: unknown): string | Fields[] {
  return typeof content === "string" ? content : partsOf(content).map(inputPart);
}

function inputPart(part: Part): Fields {
  const { type, text } = part;
  if (type === "text" || type === "output_text") return { type: "input_text", text };
  return type === "input_image" ? { ...part, detail: part.detail ?? "auto" } : part;
}

function partsOf(content: unknown): readonly Part[] {
  return Array.isArray(content) ? (content as Part[]).filter(isFields) : [];
}
