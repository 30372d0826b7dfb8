import type { CatalogueViews } from "../../../providers/catalogue/catalogue-views.ts";
import type { Provider } from "../../../providers/interface.ts";
import type { EndpointActors } from "./failover.ts";
import { endpointIdsOf } from "./plan-route.ts";

export interface ProviderHealthDependencies {
  readonly instanceId: string;
  readonly models: CatalogueViews;
  readonly providers: ReadonlyMap<string, Provider>;
  readonly endpoints: EndpointActors;
}

interface EndpointReport {
  readonly id: string;
  readonly circuit: "closed" | "open" | "half-open";
  readonly running: number;
  /** Measured latency. Null if no call has succeeded since the actor was loaded. */
  readonly latency_ms: number | null;
}

/**
 * The health of providers, as measured by this instance's own calls. Other instances have their own
 * measurements.
 */
export class ProviderHealth {
  readonly #dependencies: ProviderHealthDependencies;

  constructor(dependencies: ProviderHealthDependencies) {
    this.#dependencies = dependencies;
  }

  report() {
    const { instanceId, models, providers } = this.#dependencies;
    const byProvider = new Map<string, { models: number; endpointIds: Set<string> }>();
    for (const model of models.all.all()) {
      for (const endpoint of model.endpoints) {
        const provider = byProvider.get(endpoint.provider) ?? { models: 0, endpointIds: new Set() };
        provider.models++;
        for (const id of endpointIdsOf(endpoint, providers.get(endpoint.provider))) {
          provider.endpointIds.add(id);
        }
        byProvider.set(endpoint.provider, provider);
      }
    }
    const data = [...byProvider].map(([id, { models: count, endpointIds }]) => {
      const endpoints = [...endpointIds].map((endpointId) => this.#endpoint(endpointId));
      return { id, models: count, status: statusOf(endpoints), endpoints };
    });
    return { instance_id: instanceId, data };
  }

  #endpoint(id: string): EndpointReport {
    const actor = this.#dependencies.endpoints.peek(id);
    // An endpoint that was not called recently is not in memory.
    if (actor?.isActive !== true) return { id, circuit: "closed", running: 0, latency_ms: null };
    const { circuit, running, latencyMs } = actor.turn("health", undefined);
    return { id, circuit, running, latency_ms: latencyMs === 0 ? null : Math.round(latencyMs) };
  }
}

function statusOf(endpoints: readonly EndpointReport[]): "ok" | "degraded" | "down" {
  const open = endpoints.filter(({ circuit }) => circuit !== "closed").length;
  if (open === 0) return "ok";
  return open === endpoints.length ? "down" : "degraded";
}
