import type { Clock } from "../../../lib/clock.ts";
import { isSelfHosted } from "../../../platform/config/provider-types.ts";
import type { EgressGuard } from "../../../platform/egress/guard.ts";
import type { Provider, ProviderSettings } from "../../../providers/interface.ts";
import { createProviders, type ProviderDependencies } from "../../../providers/registry.ts";
import type { Connect } from "../../../providers/transport/dial.ts";
import { createHttpClient } from "../../../providers/transport/http-client.ts";

export interface OwnProvidersDependencies {
  /** Those of the configuration. */
  readonly settings: readonly ProviderSettings[];
  readonly shared: ProviderDependencies;
  readonly clock: Clock;
  readonly guard: EgressGuard;
}

/** An organization's own account at a provider. */
export interface OwnAccount {
  readonly providerId: string;
  readonly apiKey: string;
  /** Null: the address of the configuration. */
  readonly baseUrl: string | null;
}

const SANDBOX = "sandbox";

/** Makes providers that are called with an organization's own key. */
export class ByokProviders {
  readonly #settings: ReadonlyMap<string, ProviderSettings>;
  readonly #shared: ProviderDependencies;
  readonly #clock: Clock;
  readonly #guard: EgressGuard;

  constructor({ settings, shared, clock, guard }: OwnProvidersDependencies) {
    this.#settings = new Map(settings.map((entry) => [entry.id, entry]));
    this.#shared = shared;
    this.#clock = clock;
    this.#guard = guard;
  }

  /** Ids of the providers that take keys. */
  get ids(): string[] {
    return [...this.#settings.values()].filter(({ type }) => type !== SANDBOX).map(({ id }) => id);
  }

  /**
   * Whether a key of the provider has to come with an address: a server that asks the operator for no key takes
   * any, and calls with a key of one's own are not charged.
   */
  needsBaseUrl(providerId: string): boolean {
    const entry = this.#settings.get(providerId);
    return entry !== undefined && entry.apiKey === undefined && isSelfHosted(entry.type);
  }

  /** Undefined where no such provider is configured, or it needs an address. Throws an Error where the key cannot be sent. */
  make({ providerId, apiKey, baseUrl }: OwnAccount): Provider | undefined {
    const entry = this.#settings.get(providerId);
    if (entry === undefined || entry.type === SANDBOX) return undefined;
    if (baseUrl === null && this.needsBaseUrl(providerId)) return undefined;
    const settings = {
      ...entry,
      apiKey,
      apiKeys: undefined,
      baseUrl: baseUrl ?? entry.baseUrl,
      byokKey: { atOperatorsAddress: baseUrl === null },
    };
    // Each has a client of its own, whose connections go with it, and never the operator's proxy: that would
    // resolve the name again.
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

/** Resolves a name once, refuses addresses that are not public, and dials the address that was checked. */
function guardedConnect(guard: EgressGuard): Connect {
  return async (connection) => {
    const { hostname, port, tls } = connection;
    const host = hostname.includes(":") ? `[${hostname}]` : hostname;
    const scheme = tls === undefined ? "http" : "https";
    const { addresses } = await guard.check(`${scheme}://${host}:${port}/`);
    return Bun.connect({ ...connection, hostname: addresses[0]! });
  };
}
