import { Compile } from "typebox/schema";
import hosted from "../fixtures/openai-openapi/responses-tools.json";
import description from "../fixtures/openresponses/openapi.json";

type Fields = Record<string, unknown>;

/** What the Open Responses description leaves to each server, tools that it runs, as OpenAI describes it. */
const schemas = { ...hosted.components.schemas, ...description.components.schemas };
const definitions = JSON.parse(
  JSON.stringify(schemas).replaceAll("#/components/schemas/", "#/$defs/"),
) as Record<string, Fields>;
const HOSTED_ITEMS = [
  "WebSearchToolCall",
  "FileSearchToolCall",
  "CodeInterpreterToolCall",
  "MCPToolCall",
  "MCPListTools",
  "MCPApprovalRequest",
];
const HOSTED_TYPES = ["web_search", "web_search_preview", "file_search", "code_interpreter", "mcp"];
extend("ItemField", ...HOSTED_ITEMS.map((name) => ({ $ref: `#/$defs/${name}` })));
extend("Annotation", { $ref: "#/$defs/FileCitationBody" });
extend("Tool", { required: ["type"], properties: { type: { enum: HOSTED_TYPES } } });
const { tool_choice: choice } = definitions.ResponseResource!.properties as Record<string, Fields>;
(choice!.oneOf as Fields[]).push({
  type: "object",
  required: ["type"],
  properties: { type: { enum: HOSTED_TYPES } },
});

function extend(name: string, ...more: Fields[]): void {
  (definitions[name]!.oneOf as Fields[]).push(...more);
}

const compiled = new Map<string, ReturnType<typeof Compile>>();

/** By the type of an event: the name of its schema. */
const EVENTS = new Map(
  Object.entries(definitions).flatMap(([name, schema]) => {
    const type = (schema.properties as { type?: { enum?: string[] } } | undefined)?.type?.enum?.[0];
    return /(?:StreamingEvent|Call\w*Event|MCP\w*Event)$/.test(name) && type !== undefined
      ? [[type, name] as const]
      : [];
  }),
);

/** Throws, with the first faults, where a value is not of that schema of the Open Responses description. */
export function assertOpenResponses(name: string, value: unknown): void {
  let schema = compiled.get(name);
  if (schema === undefined) {
    schema = Compile({ $defs: definitions, $ref: `#/$defs/${name}` } as never);
    compiled.set(name, schema);
  }
  if (schema.Check(value)) return;
  const [, errors] = schema.Errors(value);
  const faults = JSON.stringify(errors.slice(0, 8));
  throw new Error(`no ${name}: ${faults}\n${JSON.stringify(value).slice(0, 2_000)}`);
}

const FOREIGN_ITEMS = /^(?:[a-z_]+_call|mcp_[a-z_]+)$/;
const FOREIGN_EVENTS = /^response\.(?:[a-z_]+_call(?:_[a-z]+)?|mcp_[a-z_]+)\.[a-z_]+$/;

function isForeign({ type }: Fields): boolean {
  return type !== "function_call" && FOREIGN_ITEMS.test(String(type));
}

/** Without what the description has no schemas for: OpenAI's own tools, their items, and further annotations. */
export function withoutForeign(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutForeign);
  if (typeof value !== "object" || value === null) return value;
  const holder = value as Fields;
  const keep: Readonly<Record<string, (one: Fields) => boolean>> = {
    output: (item) => !isForeign(item),
    tools: ({ type }) => type === "function",
    annotations: ({ type }) => type === "url_citation",
  };
  const entries = Object.entries(holder).map(([name, member]) => {
    const kept = keep[name] !== undefined && Array.isArray(member);
    return [name, withoutForeign(kept ? member.filter(keep[name]!) : member)];
  });
  return Object.fromEntries(entries);
}

/**
 * The events of a stream; throws where a frame, an event or their order is not as described.
 * @param allowsForeign what the description has no schemas for is not looked at
 */
export function responseEvents(text: string, { allowsForeign = false } = {}): Fields[] {
  const frames = text.split("\n\n").filter((frame) => frame !== "" && !frame.startsWith(":"));
  const isWhole = frames.at(-1) === "data: [DONE]";
  const events = (isWhole ? frames.slice(0, -1) : frames).map((frame) => {
    const [name, data, ...more] = frame.split("\n");
    const event = JSON.parse(data!.replace(/^data: /, "")) as Fields;
    if (more.length > 0 || name !== `event: ${event.type}`) throw new Error(`no event: ${frame}`);
    return event;
  });
  for (const [at, event] of events.entries()) {
    if (event.sequence_number !== at) throw new Error(`event ${at} has another number`);
    const { item, annotation } = event as Record<string, Fields | undefined>;
    const isOther = annotation !== undefined && annotation.type !== "url_citation";
    const schema = EVENTS.get(event.type as string);
    const isOwn = schema === undefined && FOREIGN_EVENTS.test(String(event.type));
    const isUndescribed = isOwn || isOther || (item !== undefined && isForeign(item));
    if (allowsForeign && isUndescribed) continue;
    if (schema === undefined) throw new Error(`no event of the description: ${event.type}`);
    assertOpenResponses(schema, allowsForeign ? withoutForeign(event) : event);
  }
  const { type } = events.at(-1) ?? {};
  if (isWhole !== (type === "response.completed" || type === "response.incomplete")) {
    throw new Error(`a stream that ends with ${type}, and ${isWhole ? "" : "not "}with [DONE]`);
  }
  return events;
}
