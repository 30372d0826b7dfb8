import type { Database, Query } from "../../../../db/client.ts";
import {
  invalidateProviderKey,
  type SealedProviderKey,
  usableProviderKeys,
} from "../../../../db/queries/provider-keys.ts";
import { providerKeyInvalid } from "../../../lib/events/provider-key-invalid.ts";
import { newId } from "../../../lib/ids.ts";
import type { Keyring } from "../../../lib/keyring.ts";
import { OrganizationCache } from "../../../lib/organization-cache.ts";
import type { Provider } from "../../../providers/interface.ts";
import type { ByokProviders } from "./own-providers.ts";

/** Organizations whose keys are in memory at a time. */
const MAX_ORGANIZATIONS = 10_000;

/** A provider as it is called with an organization's own key. */
export interface ByokKey {
  readonly id: string;
  readonly provider: Provider;
}

/** By the provider's id, the keys in the order in which they are tried. */
export type LoadedByokKeys = ReadonlyMap<string, readonly ByokKey[]>;

const NONE: LoadedByokKeys = new Map();

export interface OwnKeysDependencies {
  readonly background: Database;
  readonly keyring: Keyring;
  readonly byokProviders: ByokProviders;
  read<Result>(query: Query<Result>): Promise<Result>;
  onError(error: unknown): void;
}

/**
 * Keys for providers that organizations bring themselves (spec 1, BYOK). They are read when an organization
 * first calls, and kept until the change feed reports a change of them.
 */
export class ByokKeys {
  readonly #dependencies: OwnKeysDependencies;
  readonly #known: OrganizationCache<LoadedByokKeys>;

  constructor(dependencies: OwnKeysDependencies) {
    this.#dependencies = dependencies;
    this.#known = new OrganizationCache(MAX_ORGANIZATIONS, async (organizationId) =>
      this.#opened(await dependencies.read(usableProviderKeys(organizationId))),
    );
  }

  /** At once where they are known, which they are but for an organization's first call. */
  of(organizationId: string): LoadedByokKeys | Promise<LoadedByokKeys> {
    return this.#known.of(organizationId);
  }

  forget(organizationId: string): void {
    this.#known.forget(organizationId);
  }

  forgetAll(): void {
    this.#known.forgetAll();
  }

  /** The provider has refused the key. Every call that finds it out may tell; one event reports it. */
  refused(keyId: string): void {
    const { background, onError } = this.#dependencies;
    invalidateProviderKey(background, keyId, (key) =>
      providerKeyInvalid.build(newId("evt"), key.organizationId, {
        provider_key_id: key.id,
        provider: key.providerId,
      }),
    ).catch(onError);
  }

  #opened(keys: readonly SealedProviderKey[]): LoadedByokKeys {
    if (keys.length === 0) return NONE;
    const { keyring, byokProviders, onError } = this.#dependencies;
    const byProvider = new Map<string, ByokKey[]>();
    for (const key of keys) {
      try {
        const apiKey = new TextDecoder().decode(keyring.open(key.secret));
        const provider = byokProviders.make({ ...key, apiKey });
        // Of a provider that is not configured any more.
        if (provider === undefined) continue;
        const own = byProvider.get(key.providerId) ?? [];
        byProvider.set(key.providerId, [...own, { id: key.id, provider }]);
      } catch (error) {
        // One that cannot be opened or sent must not take the others with it.
        onError(error);
      }
    }
    return byProvider;
  }
}
