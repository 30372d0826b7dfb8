import { GatewayError } from "../../lib/errors.ts";
import type { AddedMessage } from "./added-messages.ts";
import type { GatewayTool, ToolOutcome } from "./tool.ts";

/** An entry of a request's `tools` with a type that the gateway runs. */
export interface RequestedTool {
  readonly type: string;
  readonly [member: string]: unknown;
}

/** The position of an entry, and other parts of the request that affect it. */
export interface ToolContext {
  /** The path for errors, such as "tools.0". */
  readonly param: string;
  readonly include: ReadonlySet<string>;
}

/** The tools of one entry of a request's `tools`. */
export interface RequestTools {
  /** Tools that the request alone determines. */
  readonly tools: readonly GatewayTool[];
  /**
   * Opens the tools. Called once, after money is held and before a provider is called. Resolves with the
   * tools that other servers list. Rejects with the error of the request: 404 if the organization does not
   * have an object.
   */
  open?(opening: ToolOpening): Promise<OpenedTools | undefined>;
}

export interface ToolOpening {
  readonly organizationId: string;
  /** The id of the API key that made the request. */
  readonly keyId: string;
  readonly requestId: string;
  readonly signal: AbortSignal;
  /** Items of the conversation that belong to remote servers: tool lists, approvals, calls. */
  readonly items?: readonly Readonly<Record<string, unknown>>[];
}

export interface OpenedTools {
  readonly tools: readonly GatewayTool[];
  /** Items shown before all others of the response: `{type: "mcp_list_tools", …}`. */
  readonly items: readonly ToolOutcome["item"][];
  /** Messages after those of the request: calls made before the model continues, with their outputs. */
  readonly messages?: readonly AddedMessage[];
  /** Closes the tools. Called when the response ends in any way, and after each failed attempt of a provider. */
  close?(): void;
}

/** Creates the tools of requests. */
export interface ToolFactory {
  /** The types that requests use: "web_search", "web_search_preview". */
  readonly types: readonly string[];
  /**
   * False if a required setting is missing. Models whose providers run such tools themselves still have the
   * tool.
   */
  readonly isSet?: boolean;
  /**
   * Creates the tools of an entry. Throws 400 if the options are invalid. If a setting is missing, the error
   * names it.
   */
  create(requested: RequestedTool, context: ToolContext): RequestTools;
}

/** Checks an entry. Throws 400 with the path of the invalid parameter. */
export function checkRequested(
  check: (value: unknown) => void,
  requested: RequestedTool,
  { param: path }: ToolContext,
): void {
  try {
    check(requested);
  } catch (error) {
    if (!(error instanceof GatewayError) || error.param === null) throw error;
    const param = `${path}.${error.param}`;
    const message = error.message.replace(JSON.stringify(error.param), JSON.stringify(param));
    throw new GatewayError(error.code, message, { param });
  }
}

/** The tools that this gateway runs, by the types that requests use. */
export class ToolRegistry {
  readonly #factories: ReadonlyMap<string, ToolFactory>;

  constructor(factories: readonly ToolFactory[]) {
    this.#factories = new Map(
      factories.flatMap((factory) => factory.types.map((type) => [type, factory] as const)),
    );
  }

  /** Returns true if the gateway is configured to run tools of the type. */
  runs(type: string): boolean {
    const factory = this.#factories.get(type);
    return factory !== undefined && factory.isSet !== false;
  }

  /** Creates the tools of an entry. Throws 400 if the type is not supported, and like `ToolFactory.create`. */
  create(requested: RequestedTool, context: ToolContext): RequestTools {
    const factory = this.#factories.get(requested.type);
    if (factory !== undefined) return factory.create(requested, context);
    const param = `${context.param}.type`;
    const type = JSON.stringify(requested.type.slice(0, 100));
    throw new GatewayError("unsupported_parameter", `${param} ${type} is not supported.`, {
      param,
    });
  }
}
