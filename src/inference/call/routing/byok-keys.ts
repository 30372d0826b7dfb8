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
import type { ByokProviders } from "./byok-providers.ts";

/** Organizations whose keys are cached in memory. */
const MAX_ORGANIZATIONS = 10_000;

/** A provider that is called with an organization's BYOK key. */
export interface ByokKey {
  readonly id: string;
  readonly provider: Provider;
}

/** The keys of each provider id, in the order in which they are tried. */
export type LoadedByokKeys = ReadonlyMap<string, readonly ByokKey[]>;

const NONE: LoadedByokKeys = new Map();

export interface ByokKeysDependencies {
  readonly background: Database;
  readonly keyring: Keyring;
  readonly byokProviders: ByokProviders;
  read<Result>(query: Query<Result>): Promise<Result>;
  onError(error: unknown): void;
}

/**
 * Provider keys that organizations bring themselves (spec 1, BYOK). They are read on an organization's first
 * call and cached until the change feed reports a change.
 */
export class ByokKeys extends OrganizationCache<LoadedByokKeys> {
  readonly #dependencies: ByokKeysDependencies;

  constructor(dependencies: ByokKeysDependencies) {
    super(MAX_ORGANIZATIONS, async (organizationId) =>
      this.#decrypt(await dependencies.read(usableProviderKeys(organizationId))),
    );
    this.#dependencies = dependencies;
  }

  /**
   * Marks a key as invalid, because the provider rejected it. Each call that notices can report it; only one
   * event is written.
   */
  markInvalid(keyId: string): void {
    const { background, onError } = this.#dependencies;
    invalidateProviderKey(background, keyId, (key) =>
      providerKeyInvalid.build(newId("evt"), key.organizationId, {
        provider_key_id: key.id,
        provider: key.providerId,
      }),
    ).catch(onError);
  }

  #decrypt(keys: readonly SealedProviderKey[]): LoadedByokKeys {
    if (keys.length === 0) return NONE;
    const { keyring, byokProviders, onError } = this.#dependencies;
    const byProvider = new Map<string, ByokKey[]>();
    for (const key of keys) {
      try {
        const apiKey = new TextDecoder().decode(keyring.open(key.secret));
        const provider = byokProviders.make({ ...key, apiKey });
        // The provider is no longer configured.
        if (provider === undefined) continue;
        const earlier = byProvider.get(key.providerId) ?? [];
        byProvider.set(key.providerId, [...earlier, { id: key.id, provider }]);
      } catch (error) {
        // A key that cannot be decrypted or sent must not affect the other keys.
        onError(error);
      }
    }
    return byProvider;
  }
}
