import { Type } from "typebox";
import { optional } from "../../../http/route.ts";
import { createCheck } from "../../../http/validate.ts";
import { checkRequested, type RequestedTool, type ToolContext } from "../registry.ts";
import type { McpServer, McpTool } from "./mcp-connection.ts";

const MAX_LABEL_CHARACTERS = 64;
const MAX_URL_CHARACTERS = 2_048;
const MAX_DESCRIPTION_CHARACTERS = 2_000;
const MAX_SECRET_CHARACTERS = 8_192;
const MAX_HEADERS = 32;
const MAX_NAMES = 1_000;
/** Valid values of an HTTP header. Blanks at the ends would be removed. */
const HEADER_VALUE = "^[\\x21-\\x7e]([\\x20-\\x7e]*[\\x21-\\x7e])?$";
const HEADER_NAME = "^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$";
/** Headers that belong to the connection or the protocol. */
const RESERVED_HEADERS =
  /^(?:host|connection|content-.*|transfer-encoding|accept.*|te|trailer|upgrade|keep-alive|proxy-.*|expect|mcp-.*)$/i;

const names = Type.Array(Type.String({ maxLength: 256 }), { maxItems: MAX_NAMES });
const toolFilter = Type.Object({
  tool_names: optional(names),
  read_only: optional(Type.Boolean()),
});
const secret = Type.String({ maxLength: MAX_SECRET_CHARACTERS, pattern: HEADER_VALUE });

const check = createCheck(
  Type.Object({
    type: Type.String(),
    server_label: Type.String({
      minLength: 1,
      maxLength: MAX_LABEL_CHARACTERS,
      pattern: "^[A-Za-z][A-Za-z0-9_-]*$",
    }),
    server_url: Type.String({ minLength: 1, maxLength: MAX_URL_CHARACTERS }),
    server_description: optional(Type.String({ maxLength: MAX_DESCRIPTION_CHARACTERS })),
    authorization: optional(secret),
    headers: optional(
      Type.Record(Type.String({ pattern: HEADER_NAME }), secret, {
        maxProperties: MAX_HEADERS,
        additionalProperties: false,
      }),
    ),
    allowed_tools: optional(Type.Union([names, toolFilter])),
    require_approval: optional(
      Type.Union([
        Type.Enum(["always", "never"]),
        Type.Object({ always: optional(toolFilter), never: optional(toolFilter) }),
      ]),
    ),
  }),
  "invalid_body",
  "Request body",
);

interface ToolFilter {
  readonly tool_names?: readonly string[] | null;
  readonly read_only?: boolean | null;
}

interface McpToolEntry extends RequestedTool {
  readonly server_label: string;
  readonly server_url: string;
  readonly server_description?: string | null;
  readonly authorization?: string | null;
  readonly headers?: Readonly<Record<string, string>> | null;
  readonly allowed_tools?: readonly string[] | ToolFilter | null;
  readonly require_approval?: "always" | "never" | Approval | null;
}

interface Approval {
  readonly always?: ToolFilter | null;
  readonly never?: ToolFilter | null;
}

/** The server of an entry in a request's `tools`. */
export interface RequestedServer extends McpServer {
  readonly description: string | undefined;
  /** Names of the tools that the model can be offered. Empty if the request does not list names. */
  readonly allowedNames: readonly string[];
  /** Returns true if the model can be offered the tool. */
  allows(tool: McpTool): boolean;
  /** Returns true if the caller has to approve each call of the tool. */
  needsApproval(tool: McpTool): boolean;
}

/** Parses an entry of `tools`. Throws 400 with the path of the invalid parameter. */
export function requestedServer(requested: RequestedTool, context: ToolContext): RequestedServer {
  checkRequested(check, requested, context);
  const { server_label: label, server_url: url, ...rest } = requested as McpToolEntry;
  const { authorization, headers, allowed_tools: allowed, require_approval: approval } = rest;
  const entries = Object.entries(headers ?? {}).filter(([name]) => !RESERVED_HEADERS.test(name));
  const filter = allowed && isNames(allowed) ? { tool_names: allowed } : (allowed ?? undefined);
  const sent: Record<string, string> = {};
  for (const [name, value] of entries) sent[name.toLowerCase()] = value;
  if (authorization) sent.authorization = `Bearer ${authorization}`;
  return {
    label,
    url,
    headers: sent,
    description: rest.server_description ?? undefined,
    allowedNames: filter?.tool_names ?? [],
    allows: (tool) => filter === undefined || isOf(tool, filter),
    needsApproval: (tool) => needsApproval(tool, approval ?? "always"),
  };
}

function isNames(allowed: readonly string[] | ToolFilter): allowed is readonly string[] {
  return Array.isArray(allowed);
}

function needsApproval(tool: McpTool, approval: "always" | "never" | Approval): boolean {
  if (typeof approval === "string") return approval === "always";
  if (approval.always && isOf(tool, approval.always)) return true;
  return !(approval.never && isOf(tool, approval.never));
}

/** Returns true if the filter contains the tool. An empty filter contains no tool. */
function isOf({ name, annotations }: McpTool, { tool_names, read_only }: ToolFilter): boolean {
  if (!tool_names && typeof read_only !== "boolean") return false;
  if (tool_names && !tool_names.includes(name)) return false;
  return typeof read_only !== "boolean" || (annotations?.readOnlyHint === true) === read_only;
}
