import type { ToolPrices } from "../../lib/catalogue-model.ts";
import type { RoutePlan } from "../call/routing/plan-route.ts";
import type { ToolRegistry } from "./registry.ts";
import type { WebSearch } from "./web-search/web-search.ts";

/** The tools that this gateway runs, and what they cost. */
export interface HostedServices {
  readonly registry: ToolRegistry;
  readonly prices: ToolPrices;
  /** Undefined where the gateway does not search the web. */
  readonly webSearch: WebSearch | undefined;
  /** Whether the operator lets an organization's models have tools that operate a computer. */
  mayUseComputer(organizationId: string): Promise<boolean>;
}

/** The plan with what the gateway asks for its own tools in the place of what providers ask for theirs. */
export function pricedForTools(plan: RoutePlan, prices: ToolPrices): RoutePlan {
  const candidates = plan.candidates.map((candidate) => {
    const { terms } = candidate;
    const priced = { ...terms, prices: { ...terms.prices, ...prices } };
    return { ...candidate, terms: priced, toolPrices: prices };
  });
  return { ...plan, candidates };
}
