import type { ModelPrices, ModelTerms } from "../../../lib/catalogue-model.ts";
import { exact, plus, times } from "../../../lib/exact-integer.ts";
import type { CostBound } from "../../call/endpoint.ts";
import type { Lack } from "../../call/routing/plan-by-lacks.ts";
import type { Candidate } from "../../call/routing/plan-route.ts";
import { costBound, type PromptSize } from "../chat-completions/cost-bound.ts";
import { NAMESPACE } from "./namespace-tools.ts";
import { isOfferedInPassing, isRunHere, type ResponsesBody, type Tool } from "./request.ts";
import type { ResponsesFacts } from "./request-facts.ts";

/**
 * Tools that OpenAI runs itself, or that its models alone are made for. They go to candidates that take requests in
 * items, and their items come back as they are.
 */
interface ProviderTool {
  /** The provider runs it, and the model reads the conversation once more with each result. */
  readonly isRun: boolean;
  /**
   * What a run costs besides tokens: a price of the catalogue; or nothing that could be metered, or that the
   * operator's account may be used for, so that only an organization's own key serves it.
   */
  readonly terms: keyof ModelPrices | "tokens" | "own key";
}

const TOOLS: Readonly<Record<string, ProviderTool>> = {
  web_search: { isRun: true, terms: "webSearchFemto" },
  web_search_2025_08_26: { isRun: true, terms: "webSearchFemto" },
  // Its price differs by model.
  web_search_preview: { isRun: true, terms: "own key" },
  web_search_preview_2025_03_11: { isRun: true, terms: "own key" },
  mcp: { isRun: true, terms: "tokens" },
  // Stores and containers are those of the account, and the operator's is that of all organizations.
  file_search: { isRun: true, terms: "own key" },
  code_interpreter: { isRun: true, terms: "own key" },
  image_generation: { isRun: true, terms: "own key" },
  shell: { isRun: true, terms: "own key" },
  computer_use_preview: { isRun: false, terms: "tokens" },
  computer: { isRun: false, terms: "tokens" },
  local_shell: { isRun: false, terms: "tokens" },
  apply_patch: { isRun: false, terms: "tokens" },
  [NAMESPACE]: { isRun: false, terms: "tokens" },
};

const COMPUTER: ReadonlySet<string> = new Set(["computer_use_preview", "computer"]);

/** Where a request states no limit: each run is held for. */
export const DEFAULT_PROVIDER_RUNS = 5;

/** Such a tool of a request. */
interface AskedTool {
  readonly type: string;
  readonly param: string;
  /** Coding agents offer it with every call: it is left out where a candidate lacks it. */
  readonly isHint: boolean;
}

/** What a request asks of such tools; plain data, since a thread may have read it. */
export interface ProviderToolUse {
  readonly tools: readonly AskedTool[];
  /** Runs that the provider may make. */
  readonly maxCalls: number;
  /** Where it asks for a tool that operates a computer. */
  readonly computer: string | undefined;
  /** Whether it is sent in items wherever a candidate takes those: a chat has no words for some of it. */
  readonly prefersItems: boolean;
}

export function isProviderTool({ type }: Pick<Tool, "type">): boolean {
  return Object.hasOwn(TOOLS, type);
}

/** Whether it is sent to a provider: what an agent offers in passing only where it costs nothing or is asked for. */
export function isSentToProvider(tool: Tool): boolean {
  if (!isProviderTool(tool)) return false;
  return tool.type !== "web_search" || tool.external_web_access !== false;
}

/** @param hasForeignItems the conversation holds items that a chat has no words for */
export function providerToolUse(
  body: ResponsesBody,
  hasForeignItems: boolean,
): ProviderToolUse | undefined {
  const all = body.tools ?? [];
  const tools = all.flatMap((tool, at): AskedTool[] => {
    if (!isSentToProvider(tool)) return [];
    return [{ type: tool.type, param: `tools.${at}.type`, isHint: isOfferedInPassing(tool) }];
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

/** Whether a candidate is sent the request in items. */
export function goesAsItems(
  { ofProvider, runsHere }: ResponsesFacts,
  { provider, ...place }: Candidate,
): boolean {
  // What the loop adds of its tools is in the words of a chat.
  if (runsHere === true) return false;
  const { upstreamModel, model } = place;
  const takes = provider.takesItems?.(upstreamModel, model.canonicalId ?? model.id);
  return takes === "always" || (takes === "able" && ofProvider?.prefersItems === true);
}

/** What a candidate lacks of them. */
export function providerToolLack(facts: ResponsesFacts, candidate: Candidate): Lack {
  const leftOut: string[] = [];
  let barrier: Lack["barrier"];
  const asItems = goesAsItems(facts, candidate);
  for (const { type, param, isHint } of facts.ofProvider?.tools ?? []) {
    if (facts.runsHere === true && isRunHere({ type })) continue;
    // A chat has its functions.
    if (type === NAMESPACE) continue;
    if (asItems && isOnItsTerms(type, candidate)) continue;
    if (isHint) leftOut.push(`tools.${type}`);
    else barrier ??= { name: type, param };
  }
  return { leftOut, listed: leftOut, barrier };
}

function isOnItsTerms(type: string, { terms, byokKeyId }: Candidate): boolean {
  const { terms: cost } = TOOLS[type]!;
  if (byokKeyId !== undefined || cost === "tokens") return true;
  return cost !== "own key" && terms.prices[cost] !== undefined;
}

/** Behind each run the model is called again, and each call may read as much as the model's context takes. */
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
