import type { Clock } from "../../../lib/clock.ts";
import { isSelfHosted } from "../../../platform/config/provider-types.ts";
import type { EgressGuard } from "../../../platform/egress/guard.ts";
import type { Provider, ProviderSettings } from "../../../providers/interface.ts";
import { createProviders, type ProviderDependencies } from "../../../providers/registry.ts";
import type { Connect } from "../../../providers/transport/dial.ts";
import { createHttpClient } from "../../../providers/transport/http-client.ts";

export interface ByokProvidersDependencies {
  /** Returns the settings of the configured providers, by id. */
  settings(): ReadonlyMap<string, ProviderSettings>;
  readonly shared: ProviderDependencies;
  readonly clock: Clock;
  readonly guard: EgressGuard;
}

/** An organization's own account at a provider. */
export interface ByokAccount {
  readonly providerId: string;
  readonly apiKey: string;
  /** The organization's base URL. Null if the configured base URL applies. */
  readonly baseUrl: string | null;
}

const SANDBOX = "sandbox";

/** Creates providers that are called with an organization's BYOK key. */
export class ByokProviders {
  readonly #settings: () => ReadonlyMap<string, ProviderSettings>;
  readonly #shared: ProviderDependencies;
  readonly #clock: Clock;
  readonly #guard: EgressGuard;

  constructor({ settings, shared, clock, guard }: ByokProvidersDependencies) {
    this.#settings = settings;
    this.#shared = shared;
    this.#clock = clock;
    this.#guard = guard;
  }

  /** Returns the ids of the providers for which an organization can add keys. */
  idsFor(organizationId: string): string[] {
    return [...this.#settings().values()]
      .filter(({ type }) => type !== SANDBOX)
      .filter(({ organizations }) => organizations?.includes(organizationId) ?? true)
      .map(({ id }) => id);
  }

  /**
   * Returns true if a key of the provider needs a base URL. A server to which the operator sends no key
   * accepts any key, and BYOK calls are not charged. Without a base URL, such a key would make calls free.
   */
  needsBaseUrl(providerId: string): boolean {
    const entry = this.#settings().get(providerId);
    return entry !== undefined && entry.apiKey === undefined && isSelfHosted(entry.type);
  }

  /**
   * Returns the provider with the account's key. Returns undefined if no such provider is configured, or if
   * it needs a base URL and the account has none. Throws an Error if the key cannot be sent.
   */
  make({ providerId, apiKey, baseUrl }: ByokAccount): Provider | undefined {
    const entry = this.#settings().get(providerId);
    if (entry === undefined || entry.type === SANDBOX) return undefined;
    if (baseUrl === null && this.needsBaseUrl(providerId)) return undefined;
    const settings = {
      ...entry,
      apiKey,
      apiKeys: undefined,
      baseUrl: baseUrl ?? entry.baseUrl,
      byokKey: { atOperatorsAddress: baseUrl === null },
      // The operator's headers can contain secrets, and its proxy would resolve the name again.
      ...(baseUrl !== null && { headers: undefined, proxy: undefined }),
    };
    // A provider at the organization's own base URL has its own client, whose connections are dropped with
    // it. That client never uses the operator's proxy, because the proxy would resolve the name again.
    const shared =
      baseUrl === null
        ? this.#shared
        : {
            ...this.#shared,
            httpClient: createHttpClient({
              clock: this.#clock,
              connect: guardedConnect(this.#guard),
            }),
          };
    return createProviders([settings], shared).get(providerId);
  }
}

/**
 * Returns a connect function that resolves a name once, rejects addresses that are not public, and connects
 * to the checked address.
 */
function guardedConnect(guard: EgressGuard): Connect {
  return async (connection) => {
    const { hostname, port, tls } = connection;
    const host = hostname.includes(":") ? `[${hostname}]` : hostname;
    const scheme = tls === undefined ? "http" : "https";
    const { addresses } = await guard.check(`${scheme}://${host}:${port}/`);
    return Bun.connect({ ...connection, hostname: addresses[0]! });
  };
}
