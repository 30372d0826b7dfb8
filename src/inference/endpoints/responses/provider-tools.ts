import type { ModelPrices, ModelTerms } from "../../../lib/catalogue-model.ts";
import { exact, plus, times } from "../../../lib/exact-integer.ts";
import type { CostBound } from "../../call/endpoint.ts";
import type { CandidateSupport } from "../../call/routing/filter-by-support.ts";
import type { Candidate } from "../../call/routing/plan-route.ts";
import { costBound, type PromptSize } from "../chat-completions/cost-bound.ts";
import { NAMESPACE } from "./namespace-tools.ts";
import { isOfferedByDefault, isRunHere, type ResponsesBody, type Tool } from "./request.ts";
import type { ResponsesFacts } from "./request-facts.ts";

/**
 * Tools that OpenAI runs itself, or that only its models support. They are sent to candidates that take
 * requests as items, and their items are returned unchanged.
 */
interface ProviderTool {
  /** True if the provider runs the tool. The model reads the conversation again after each run. */
  readonly isRun: boolean;
  /**
   * The cost of a run besides tokens: a price of the catalogue, `tokens` if there is none, or `byok` if the
   * gateway cannot meter it or would use the operator's account. A tool with `byok` is served only with the
   * organization's own key.
   */
  readonly terms: keyof ModelPrices | "tokens" | "byok";
}

const TOOLS: Readonly<Record<string, ProviderTool>> = {
  web_search: { isRun: true, terms: "webSearchFemto" },
  web_search_2025_08_26: { isRun: true, terms: "webSearchFemto" },
  // Its price differs by model.
  web_search_preview: { isRun: true, terms: "byok" },
  web_search_preview_2025_03_11: { isRun: true, terms: "byok" },
  mcp: { isRun: true, terms: "tokens" },
  // Stores and containers belong to the account. The operator's account is shared by all organizations.
  file_search: { isRun: true, terms: "byok" },
  code_interpreter: { isRun: true, terms: "byok" },
  image_generation: { isRun: true, terms: "byok" },
  shell: { isRun: true, terms: "byok" },
  computer_use_preview: { isRun: false, terms: "tokens" },
  computer: { isRun: false, terms: "tokens" },
  local_shell: { isRun: false, terms: "tokens" },
  apply_patch: { isRun: false, terms: "tokens" },
  [NAMESPACE]: { isRun: false, terms: "tokens" },
};

const COMPUTER: ReadonlySet<string> = new Set(["computer_use_preview", "computer"]);

/** Runs that the hold covers if the request states no limit. */
export const DEFAULT_PROVIDER_RUNS = 5;

/** A provider tool of a request. */
interface RequestedTool {
  readonly type: string;
  readonly param: string;
  /**
   * True for tools that coding agents offer with every call. They are left out if a candidate does not
   * support them.
   */
  readonly isHint: boolean;
}

/** The provider tools that a request uses. Plain data, so that a thread can return it. */
export interface ProviderToolUse {
  readonly tools: readonly RequestedTool[];
  /** Maximum number of runs by the provider. */
  readonly maxCalls: number;
  /** Parameter that requests a tool that operates a computer, such as `tools.0.type`, if the request has one. */
  readonly computer: string | undefined;
  /**
   * True if candidates that take items receive the request as items, because a chat cannot express a part of
   * it.
   */
  readonly prefersItems: boolean;
}

export function isProviderTool({ type }: Pick<Tool, "type">): boolean {
  return Object.hasOwn(TOOLS, type);
}

/**
 * Returns true if the tool is sent to a provider. A web search with `external_web_access: false`, which coding
 * agents offer by default, is not sent.
 */
export function isSentToProvider(tool: Tool): boolean {
  if (!isProviderTool(tool)) return false;
  return tool.type !== "web_search" || tool.external_web_access !== false;
}

/**
 * Returns the provider tools that a request uses, or undefined if a chat can express the request.
 *
 * @param hasForeignItems true if the conversation has items without a counterpart in chats
 */
export function providerToolUse(
  body: ResponsesBody,
  hasForeignItems: boolean,
): ProviderToolUse | undefined {
  const all = body.tools ?? [];
  const tools = all.flatMap((tool, at): RequestedTool[] => {
    if (!isSentToProvider(tool)) return [];
    return [{ type: tool.type, param: `tools.${at}.type`, isHint: isOfferedByDefault(tool) }];
  });
  const hasGrammar = all.some(
    ({ type, format }) => type === "custom" && format?.type === "grammar",
  );
  const prefersItems = tools.length > 0 || hasForeignItems || hasGrammar;
  if (!prefersItems) return undefined;
  const isRun = tools.some(({ type }) => TOOLS[type]!.isRun);
  return {
    tools,
    maxCalls: isRun ? (body.max_tool_calls ?? DEFAULT_PROVIDER_RUNS) : 0,
    computer: tools.find(({ type }) => COMPUTER.has(type))?.param,
    prefersItems,
  };
}

/** Returns true if the candidate receives the request as items. */
export function receivesItems(
  { ofProvider, runsHere }: ResponsesFacts,
  { provider, ...endpoint }: Candidate,
): boolean {
  // The tool loop adds tools and messages in chat form, so the whole request is sent as a chat.
  if (runsHere === true) return false;
  const { upstreamModel, model } = endpoint;
  const takes = provider.takesItems?.(upstreamModel, model.canonicalId ?? model.id);
  return takes === "always" || (takes === "able" && ofProvider?.prefersItems === true);
}

/** Returns the provider tools that a candidate does not support. */
export function unsupportedProviderTools(
  facts: ResponsesFacts,
  candidate: Candidate,
): CandidateSupport {
  const leftOut: string[] = [];
  let barrier: CandidateSupport["barrier"];
  const asItems = receivesItems(facts, candidate);
  for (const { type, param, isHint } of facts.ofProvider?.tools ?? []) {
    if (facts.runsHere === true && isRunHere({ type })) continue;
    // A chat has the functions of the namespace.
    if (type === NAMESPACE) continue;
    if (asItems && canBill(type, candidate)) continue;
    if (isHint) leftOut.push(`tools.${type}`);
    else barrier ??= { name: type, param };
  }
  return { leftOut, listed: leftOut, barrier };
}

function canBill(type: string, { terms, byokKeyId }: Candidate): boolean {
  const { terms: cost } = TOOLS[type]!;
  if (byokKeyId !== undefined || cost === "tokens") return true;
  return cost !== "byok" && terms.prices[cost] !== undefined;
}

/**
 * Returns an upper bound of the cost. After each run, the model is called again, and each call can read the
 * model's full context.
 */
export function boundWithRuns(
  { chat, ofProvider, runsHere }: ResponsesFacts,
  size: PromptSize,
  terms: ModelTerms,
): CostBound {
  const { maxCalls = 0 } = ofProvider ?? {};
  if (maxCalls === 0 || runsHere === true) return costBound(chat, size, terms);
  const step = costBound(chat, { ...size, media: Math.max(size.media, 1) }, terms);
  const { webSearchFemto = 0n } = terms.prices;
  const runs = times(maxCalls, exact(webSearchFemto));
  const calls = maxCalls + 1;
  const fixedFemto = plus(times(calls, step.fixedFemto), runs);
  return { ...step, fixedFemto, fixedTokens: calls * step.fixedTokens };
}
