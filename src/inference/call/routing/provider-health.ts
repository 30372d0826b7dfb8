import type { EndpointHealth } from "../../../../actors/endpoint/actor.ts";
import { isoTime } from "../../../lib/utc-time.ts";
import type { CatalogueViews } from "../../../providers/catalogue/catalogue-views.ts";
import type { Provider } from "../../../providers/interface.ts";
import { type EndpointActors, measuredEndpoint } from "./failover.ts";
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
  /** The last failed call. Null if none has failed since the actor was loaded. */
  readonly last_failure: FailureReport | null;
}

interface FailureReport {
  readonly kind: string;
  readonly status: number | null;
  readonly at: string;
}

/** An endpoint that was called recently: a provider with one of its keys, and a model. */
export interface MeasuredEndpoint extends EndpointHealth {
  readonly providerId: string;
  /** Position of the key in the configuration, from 1. */
  readonly keyPosition: number;
  readonly endpointId: string;
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

  /** Returns the endpoints that this instance has called recently. */
  measured(): MeasuredEndpoint[] {
    const { models, providers, endpoints } = this.#dependencies;
    const found = new Map<string, MeasuredEndpoint>();
    for (const model of models.all.all()) {
      for (const endpoint of model.endpoints) {
        const providerId = endpoint.provider;
        for (const [at, endpointId] of endpointIdsOf(
          endpoint,
          providers.get(providerId),
        ).entries()) {
          if (found.has(endpointId)) continue;
          const health = measuredEndpoint(endpoints, endpointId);
          if (health === undefined) continue;
          found.set(endpointId, { ...health, providerId, keyPosition: at + 1, endpointId });
        }
      }
    }
    return [...found.values()];
  }

  #endpoint(id: string): EndpointReport {
    const health = measuredEndpoint(this.#dependencies.endpoints, id);
    // An endpoint that was not called recently is not in memory.
    if (health === undefined) {
      return { id, circuit: "closed", running: 0, latency_ms: null, last_failure: null };
    }
    const { circuit, running, latencyMs, lastFailure } = health;
    return {
      ...{ id, circuit, running },
      latency_ms: latencyMs === 0 ? null : Math.round(latencyMs),
      last_failure:
        lastFailure === undefined
          ? null
          : {
              kind: lastFailure.kind,
              status: lastFailure.status ?? null,
              at: isoTime(lastFailure.atMs),
            },
    };
  }
}

function statusOf(endpoints: readonly EndpointReport[]): "ok" | "degraded" | "down" {
  const open = endpoints.filter(({ circuit }) => circuit !== "closed").length;
  if (open === 0) return "ok";
  return open === endpoints.length ? "down" : "degraded";
}
