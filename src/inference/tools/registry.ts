import { GatewayError } from "../../lib/errors.ts";
import type { AddedMessage } from "./added-messages.ts";
import type { GatewayTool, ToolOutcome } from "./tool.ts";

/** An entry of a request's `tools` whose type is one of the gateway's own. */
export interface RequestedTool {
  readonly type: string;
  readonly [member: string]: unknown;
}

/** Where the entry stands, and what of the rest of the request decides about it. */
export interface RequestedPlace {
  /** For errors: "tools.0". */
  readonly param: string;
  readonly include: ReadonlySet<string>;
}

/** What one entry of a request's `tools` brings. */
export interface RequestTools {
  /** Those that the request alone decides. */
  readonly tools: readonly GatewayTool[];
  /**
   * Called once, when money is held and before a provider is called. Resolves with what had to be asked elsewhere.
   * Rejects with the error of the request: 404 for what the organization does not have.
   */
  open?(opening: ToolOpening): Promise<OpenedTools | undefined>;
}

export interface ToolOpening {
  readonly organizationId: string;
  /** Of the key that called. */
  readonly keyId: string;
  readonly requestId: string;
  readonly signal: AbortSignal;
  /** Those of the conversation that are of remote servers: their lists of tools, approvals, calls. */
  readonly items?: readonly Readonly<Record<string, unknown>>[];
}

export interface OpenedTools {
  readonly tools: readonly GatewayTool[];
  /** Shown before everything else of the response: `{type: "mcp_list_tools", …}`. */
  readonly items: readonly ToolOutcome["item"][];
  /** Behind those of the request: calls that were made before the model goes on, with their outputs. */
  readonly messages?: readonly AddedMessage[];
  /** Called when the response is over, however it ends, and behind each try of a provider that failed. */
  close?(): void;
}

/** Makes the tools of requests. */
export interface ToolFactory {
  /** The types that requests know it by: "web_search", "web_search_preview". */
  readonly types: readonly string[];
  /** False where the gateway lacks a setting for it: models whose providers run such tools themselves have it still. */
  readonly isSet?: boolean;
  /** Throws 400 where the options are wrong, or the gateway lacks a setting for it, naming that. */
  create(requested: RequestedTool, place: RequestedPlace): RequestTools;
}

/** Throws 400, with the place of the fault in the request. */
export function checkRequested(
  check: (value: unknown) => void,
  requested: RequestedTool,
  { param: place }: RequestedPlace,
): void {
  try {
    check(requested);
  } catch (error) {
    if (!(error instanceof GatewayError) || error.param === null) throw error;
    const param = `${place}.${error.param}`;
    const message = error.message.replace(JSON.stringify(error.param), JSON.stringify(param));
    throw new GatewayError(error.code, message, { param });
  }
}

/** The tools that this gateway runs, by the types that requests know them by. */
export class ToolRegistry {
  readonly #factories: ReadonlyMap<string, ToolFactory>;

  constructor(factories: readonly ToolFactory[]) {
    this.#factories = new Map(
      factories.flatMap((factory) => factory.types.map((type) => [type, factory] as const)),
    );
  }

  /** Whether the gateway is set to run tools of that type. */
  runs(type: string): boolean {
    const factory = this.#factories.get(type);
    return factory !== undefined && factory.isSet !== false;
  }

  /** Throws 400. */
  create(requested: RequestedTool, place: RequestedPlace): RequestTools {
    const factory = this.#factories.get(requested.type);
    if (factory !== undefined) return factory.create(requested, place);
    const param = `${place.param}.type`;
    const type = JSON.stringify(requested.type.slice(0, 100));
    throw new GatewayError("unsupported_parameter", `${param} ${type} is not supported.`, {
      param,
    });
  }
}
