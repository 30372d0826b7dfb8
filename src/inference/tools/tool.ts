import type { Usage } from "../../lib/usage.ts";

/** The billed quantities of a tool run, besides tokens. */
export type ToolQuantities = Pick<Usage, "webSearches" | "fileSearches">;

/**
 * A tool that the gateway runs itself for a model. Chat models are offered it as a function (contract §7). A
 * response shows each run as an item of the tool's type.
 */
export interface GatewayTool {
  /** The name of the function: "web_search". */
  readonly name: string;
  readonly description: string;
  /** JSON schema of the parameters. */
  readonly parameters: Readonly<Record<string, unknown>>;
  /** The type of the items that show its runs. If absent, it is the name with `_call`. */
  readonly itemType?: string;
  /** True if a run leaves state in this process that later runs of the response need. */
  readonly keepsState?: true;
  /** Maximum quantities of one run, for the hold of a step. */
  readonly quantitiesBound: ToolQuantities;
  /** Returns the members of the output item while the tool runs, other than id, type and status. */
  opening?(json: string): Readonly<Record<string, unknown>>;
  /** Resolves with an outcome for every failure that the model can react to. Rejects only if the response fails. */
  run(call: ToolRun): Promise<ToolOutcome>;
}

export interface ToolRun {
  /** The JSON that the model wrote. It can be invalid. */
  readonly arguments: string;
  readonly organizationId: string;
  /** The id of the API key that made the request. */
  readonly keyId: string;
  readonly requestId: string;
  /** Aborts when the client disconnects or the time of the response ends. */
  readonly signal: AbortSignal;
  /**
   * Reports a state between `in_progress` and the end, named as in the item's events: "searching",
   * "interpreting".
   */
  progress(state: string): void;
}

export interface ToolOutcome {
  /** The output that the model reads. */
  readonly output: string;
  /** Members of the item in a response except `id` and `status`: `{type: "web_search_call", action: …}`. */
  readonly item: { readonly type: string; readonly [member: string]: unknown };
  readonly isFailed?: boolean;
  /** True if the caller has to act on the item. The model is not called again for this response. */
  readonly endsResponse?: boolean;
  /** Sources that an answer can cite. The loop finds them in the text and adds annotations. */
  readonly sources?: readonly ToolSource[];
  /** Images for models that accept images, as data URLs. */
  readonly images?: readonly string[];
  /** The quantities to charge for the run: `{ webSearches: 1 }`. */
  readonly quantities?: ToolQuantities;
}

export type ToolSource =
  | { readonly kind: "url"; readonly url: string; readonly title: string }
  | { readonly kind: "file"; readonly fileId: string; readonly filename: string };
