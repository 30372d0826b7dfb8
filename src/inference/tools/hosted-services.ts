import type { ToolPrices } from "../../lib/catalogue-model.ts";
import type { RoutePlan } from "../call/routing/plan-route.ts";
import type { ToolRegistry } from "./registry.ts";
import type { WebSearch } from "./web-search/web-search.ts";

/** The tools that this gateway runs, and their prices. */
export interface HostedServices {
  readonly registry: ToolRegistry;
  readonly prices: ToolPrices;
  /** The web search. Undefined if the gateway does not search the web. */
  readonly webSearch: WebSearch | undefined;
  /** Returns true if the operator allows the organization's models to use tools that operate a computer. */
  mayUseComputer(organizationId: string): Promise<boolean>;
}

/** Returns the plan with the gateway's tool prices instead of the providers' tool prices. */
export function pricedForTools(plan: RoutePlan, prices: ToolPrices): RoutePlan {
  const candidates = plan.candidates.map((candidate) => {
    const { terms } = candidate;
    const priced = { ...terms, prices: { ...terms.prices, ...prices } };
    return { ...candidate, terms: priced, toolPrices: prices };
  });
  return { ...plan, candidates };
}
