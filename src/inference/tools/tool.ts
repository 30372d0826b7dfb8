import type { Usage } from "../../lib/usage.ts";

/** What a run of a tool is charged for beside tokens. */
export type ToolQuantities = Pick<Usage, "webSearches" | "fileSearches">;

/**
 * A tool that the gateway runs itself for a model. Chat models are offered it as a function (contract §7); a
 * response shows each run as an item of the tool's own type.
 */
export interface GatewayTool {
  /** The function's name: "web_search". */
  readonly name: string;
  readonly description: string;
  /** A JSON schema. */
  readonly parameters: Readonly<Record<string, unknown>>;
  /** Of the items that show its runs; the name with `_call` behind it where it is left out. */
  readonly itemType?: string;
  /** True if a run leaves something in this process that later runs of the response need. */
  readonly keepsState?: true;
  /** The most that one run adds to the bill, for the hold of a step. */
  readonly quantitiesBound: ToolQuantities;
  /** Members of the item while it runs, besides id, type and status. */
  opening?(json: string): Readonly<Record<string, unknown>>;
  /** Resolves with an outcome for every failure that the model can react to; rejects only where the response fails. */
  run(call: ToolRun): Promise<ToolOutcome>;
}

export interface ToolRun {
  /** JSON as the model wrote it, which may be anything. */
  readonly arguments: string;
  readonly organizationId: string;
  /** Of the key that called. */
  readonly keyId: string;
  readonly requestId: string;
  /** Aborts when the client goes away or the response's time is over. */
  readonly signal: AbortSignal;
  /** Reports a state between `in_progress` and the end, as the item's events name it: "searching", "interpreting". */
  progress(state: string): void;
}

export interface ToolOutcome {
  /** What the model reads as the tool's answer. */
  readonly output: string;
  /** Members of the item in a response but for `id` and `status`: `{type: "web_search_call", action: …}`. */
  readonly item: { readonly type: string; readonly [member: string]: unknown };
  readonly isFailed?: boolean;
  /** The caller has to act on the item: the model is not called again for this response. */
  readonly endsResponse?: boolean;
  /** What an answer may cite: the loop finds citations in the text and makes annotations of them. */
  readonly sources?: readonly ToolSource[];
  /** Images for models that see, as data URLs. */
  readonly images?: readonly string[];
  /** What the run is charged for: `{ webSearches: 1 }`. */
  readonly quantities?: ToolQuantities;
}

export type ToolSource =
  | { readonly kind: "url"; readonly url: string; readonly title: string }
  | { readonly kind: "file"; readonly fileId: string; readonly filename: string };
