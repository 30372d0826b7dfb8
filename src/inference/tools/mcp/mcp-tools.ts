import { GatewayError } from "../../../lib/errors.ts";
import { isFields, jsonValue } from "../../../lib/json.ts";
import { EgressRefused } from "../../../platform/egress/guard.ts";
import type { AddedMessage } from "../added-messages.ts";
import type {
  OpenedTools,
  RequestedTool,
  RequestTools,
  ToolContext,
  ToolFactory,
  ToolOpening,
} from "../registry.ts";
import type { GatewayTool, ToolOutcome, ToolRun } from "../tool.ts";
import { type McpConnect, McpFailure, type McpTool } from "./mcp-connection.ts";
import { createExchangeSemaphore, McpSession } from "./mcp-session.ts";
import { type RequestedServer, requestedServer } from "./requested-server.ts";
import { functionOfTool } from "./tool-names.ts";

type Fields = Readonly<Record<string, unknown>>;

/** Maximum number of tools of one server. */
const MAX_TOOLS = 128;
/** Maximum characters of a server's tool list in JSON. */
const MAX_LIST_CHARACTERS = 262_144;
const MAX_DEPTH = 32;
const MAX_DESCRIPTION_CHARACTERS = 4_096;
/** Maximum characters of one result that the model reads. */
const MAX_OUTPUT_CHARACTERS = 131_072;
const MAX_APPROVED_CALLS = 16;

export interface McpServices {
  /** Loads when the gateway starts. Undefined if no servers are allowed. */
  readonly connect: Promise<McpConnect> | undefined;
  /** Host names. `*.` in front of one allows all its subdomains, and `*` alone allows all hosts. */
  readonly allowedHosts: readonly string[];
  /** Parses an address. Throws EgressRefused if its form is not allowed. */
  parseUrl(text: string): URL;
}

/** The tool `mcp`: tools of remote servers through the Model Context Protocol (OpenAI's tool of that name). */
export class McpTools implements ToolFactory {
  readonly types = ["mcp"];
  readonly isSet: boolean;
  readonly #services: McpServices;
  readonly #exchanges = createExchangeSemaphore();

  constructor(services: McpServices) {
    this.#services = services;
    this.isSet = services.connect !== undefined;
  }

  create(requested: RequestedTool, context: ToolContext): RequestTools {
    const { connect } = this.#services;
    if (connect === undefined) {
      const message = `${context.param}.type "mcp" is not supported: the gateway calls no servers (GATEWAY_MCP_SERVERS is not set).`;
      throw new GatewayError("unsupported_parameter", message, { param: `${context.param}.type` });
    }
    const server = requestedServer(requested, context);
    this.#assertAllowed(server, `${context.param}.server_url`);
    const session = new McpSession(connect, server, this.#exchanges);
    return {
      tools: [],
      open: (opening) =>
        openServer({ server, session, param: `${context.param}.server_url` }, opening),
    };
  }

  #assertAllowed({ url }: RequestedServer, param: string): void {
    const { allowedHosts, parseUrl } = this.#services;
    let host: string;
    try {
      host = parseUrl(url).hostname.replace(/\.$/, "");
    } catch (error) {
      if (!(error instanceof EgressRefused)) throw error;
      const message = `Request body field "${param}": ${error.message}`;
      throw new GatewayError("invalid_body", message, { param });
    }
    if (allowedHosts.some((allowed) => isAllowed(host, allowed))) return;
    const message = `The server at ${JSON.stringify(host)} is not among those that the gateway is allowed to call.`;
    throw new GatewayError("tool_not_allowed", message, { param });
  }
}

function isAllowed(host: string, allowed: string): boolean {
  if (allowed === "*") return true;
  return allowed.startsWith("*.") ? host.endsWith(allowed.slice(1)) : host === allowed;
}

interface OpenServer {
  readonly server: RequestedServer;
  readonly session: McpSession;
  readonly param: string;
}

async function openServer(open: OpenServer, opening: ToolOpening): Promise<OpenedTools> {
  try {
    return await openedServer(open, opening);
  } catch (error) {
    open.session.close();
    throw error;
  }
}

async function openedServer(open: OpenServer, opening: ToolOpening): Promise<OpenedTools> {
  const { server, session } = open;
  const { items = [] } = opening;
  const listedBefore = listInConversation(server, items);
  const listed = listedBefore ?? (await listTools(open, opening));
  const allowed = listed.filter((tool) => server.allows(tool));
  const tools = allowed.map((tool) => new McpGatewayTool(open, tool));
  const runs = await runApproved(open, allowed, opening);
  return {
    tools,
    items: [
      ...(listedBefore === undefined ? [listItem(server, allowed)] : []),
      ...runs.map(({ item }) => item),
    ],
    messages: runs.flatMap(({ messages }) => messages),
    close: () => session.close(),
  };
}

/** Lists the tools of the server. Throws 400 if the server's answer is invalid or has too many tools. */
async function listTools(
  { server, session, param }: OpenServer,
  { organizationId, signal }: ToolOpening,
): Promise<McpTool[]> {
  try {
    const tools = await session.use(organizationId, signal, (connection) =>
      connection.listTools(signal),
    );
    const fault = faultOf(tools);
    if (fault !== undefined)
      throw new McpFailure(`The MCP server ${JSON.stringify(server.label)} ${fault}.`);
    return tools;
  } catch (error) {
    if (!(error instanceof McpFailure)) throw error;
    // The cause can quote the address, which can contain a secret. It is left out.
    throw new GatewayError("mcp_server_failed", error.message, { param });
  }
}

function faultOf(tools: readonly McpTool[]): string | undefined {
  if (tools.length > MAX_TOOLS) return `has more than ${MAX_TOOLS} tools`;
  if (tools.some(({ inputSchema }) => isDeeper(inputSchema, MAX_DEPTH))) {
    return `has a tool whose schema is nested beyond ${MAX_DEPTH} levels`;
  }
  if (JSON.stringify(tools).length > MAX_LIST_CHARACTERS) {
    return `describes its tools in more than ${MAX_LIST_CHARACTERS} characters`;
  }
  return new Set(tools.map(({ name }) => name)).size < tools.length
    ? "has several tools of one name"
    : undefined;
}

function isDeeper(value: unknown, levels: number): boolean {
  if (typeof value !== "object" || value === null) return false;
  return levels === 0 || Object.values(value).some((member) => isDeeper(member, levels - 1));
}

function listItem({ label }: RequestedServer, tools: readonly McpTool[]): ToolOutcome["item"] {
  return {
    type: "mcp_list_tools",
    server_label: label,
    tools: tools.map(({ name, description, inputSchema, annotations }) => ({
      name,
      description: description ?? null,
      input_schema: inputSchema,
      annotations: annotations ?? null,
    })),
    error: null,
  };
}

/**
 * Returns the tool list that the conversation already contains, so that the server is not called again. The
 * list has the tools that were allowed at that time. Returns undefined if a tool is missing that the request
 * now allows by name.
 */
function listInConversation(
  { label, allowedNames }: RequestedServer,
  items: readonly Fields[],
): McpTool[] | undefined {
  const item = items.findLast(
    ({ type, server_label }) => type === "mcp_list_tools" && server_label === label,
  );
  if (item === undefined || !Array.isArray(item.tools)) return undefined;
  const tools = item.tools.filter(isFields).flatMap((tool): McpTool[] => {
    const { name, description, input_schema: inputSchema, annotations } = tool;
    if (typeof name !== "string" || !isFields(inputSchema)) return [];
    return [
      {
        name,
        description: typeof description === "string" ? description : undefined,
        inputSchema,
        annotations: isFields(annotations) ? annotations : undefined,
      },
    ];
  });
  const names = new Set(tools.map(({ name }) => name));
  if (allowedNames.some((name) => !names.has(name))) return undefined;
  // A client could have written the list, so it is checked again.
  return tools.length === item.tools.length && faultOf(tools) === undefined ? tools : undefined;
}

/** A tool of a server, as models are offered it. */
class McpGatewayTool implements GatewayTool {
  readonly name: string;
  readonly description: string;
  readonly parameters: Fields;
  readonly itemType: "mcp_call" | "mcp_approval_request";
  readonly quantitiesBound = {};
  readonly #open: OpenServer;
  readonly #tool: McpTool;

  constructor(open: OpenServer, tool: McpTool) {
    const { label, description } = open.server;
    this.#open = open;
    this.#tool = tool;
    this.name = functionOfTool(label, tool.name);
    const descriptions = [description, tool.description].filter((text) => text !== undefined);
    this.description = descriptions.join("\n\n").slice(0, MAX_DESCRIPTION_CHARACTERS);
    const { $schema: _, ...schema } = tool.inputSchema;
    this.parameters = { properties: {}, ...schema, type: "object" };
    this.itemType = open.server.needsApproval(tool) ? "mcp_approval_request" : "mcp_call";
  }

  opening(json: string) {
    return { server_label: this.#open.server.label, name: this.#tool.name, arguments: json };
  }

  async run(run: ToolRun): Promise<ToolOutcome> {
    if (this.itemType === "mcp_call") return this.call(run);
    const item = { type: this.itemType, ...this.opening(run.arguments) };
    return { output: "", item, endsResponse: true };
  }

  /** Calls the tool, whether or not its calls need an approval. */
  async call({
    arguments: json,
    organizationId,
    signal,
  }: Pick<ToolRun, "arguments" | "organizationId" | "signal">): Promise<ToolOutcome> {
    const { session } = this.#open;
    const input = json.trim() === "" ? {} : jsonValue(json);
    if (!isFields(input)) return this.#failed(json, "The arguments are not a JSON object.");
    try {
      const { text, images, isError } = await session.use(organizationId, signal, (connection) =>
        connection.callTool(this.#tool.name, input, signal),
      );
      const shortText = shortened(text);
      if (isError) return this.#failed(json, shortText === "" ? "The tool failed." : shortText);
      return {
        output: shortText,
        images,
        item: this.#item(json, { output: shortText, error: null }),
      };
    } catch (error) {
      if (!(error instanceof McpFailure)) throw error;
      return this.#failed(json, error.message);
    }
  }

  #failed(json: string, error: string): ToolOutcome {
    return { output: error, item: this.#item(json, { output: null, error }), isFailed: true };
  }

  #item(json: string, result: Fields): ToolOutcome["item"] {
    return { type: "mcp_call", ...this.opening(json), ...result };
  }
}

function shortened(text: string): string {
  if (text.length <= MAX_OUTPUT_CHARACTERS) return text;
  return `${text.slice(0, MAX_OUTPUT_CHARACTERS).toWellFormed()}\n[cut: ${text.length} characters]`;
}

interface ApprovedRun {
  readonly item: ToolOutcome["item"];
  readonly messages: readonly AddedMessage[];
}

/** Runs the calls that the caller has approved since the last response, before the model continues. */
async function runApproved(
  open: OpenServer,
  tools: readonly McpTool[],
  { organizationId, signal, items = [] }: ToolOpening,
): Promise<ApprovedRun[]> {
  const done = new Set(
    items.map(({ approval_request_id: id, type }) => (type === "mcp_call" ? id : undefined)),
  );
  const approved = new Set(
    items
      .filter(({ type, approve }) => type === "mcp_approval_response" && approve === true)
      .map(({ approval_request_id: id }) => id)
      .filter((id) => !done.has(id)),
  );
  const requests = items.filter(
    ({ type, id, name, server_label: label }) =>
      type === "mcp_approval_request" &&
      typeof name === "string" &&
      approved.has(id) &&
      label === open.server.label,
  );
  return Promise.all(
    requests
      .slice(0, MAX_APPROVED_CALLS)
      .map(async ({ id, name, arguments: json }): Promise<ApprovedRun> => {
        const tool = tools.find((candidate) => candidate.name === name);
        const sent = typeof json === "string" ? json : "{}";
        const call = { arguments: sent, organizationId, signal };
        const outcome =
          tool === undefined
            ? missingTool(open, name, call.arguments)
            : await new McpGatewayTool(open, tool).call(call);
        const { output } = outcome;
        const item = { ...outcome.item, approval_request_id: id };
        const called = functionOfTool(open.server.label, String(name));
        return { item, messages: callMessages(String(id), called, call.arguments, output) };
      }),
  );
}

function missingTool({ server }: OpenServer, name: unknown, json: string): ToolOutcome {
  const error = "The server has no such tool, or it is not allowed.";
  const item = {
    type: "mcp_call",
    server_label: server.label,
    name,
    arguments: json,
    output: null,
    error,
  };
  return { output: error, item, isFailed: true };
}

/** Returns a call and its output as messages for the model. */
function callMessages(id: string, name: string, json: string, output: string): AddedMessage[] {
  const call = { id, type: "function", function: { name, arguments: json } };
  return [
    { role: "assistant", content: null, tool_calls: [call] },
    { role: "tool", tool_call_id: id, content: output },
  ];
}
