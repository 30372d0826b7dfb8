import { authored } from "../../../db/authored.ts";
import type { Database } from "../../../db/client.ts";
import { insertOutboxEvents } from "../../../db/queries/outbox.ts";
import {
  deleteProviderKey,
  insertProviderKey,
  listProviderKeys,
  type ProviderKeyRecord,
} from "../../../db/queries/provider-keys.ts";
import type { ByokKeys } from "../../inference/call/routing/byok-keys.ts";
import type { ByokProviders } from "../../inference/call/routing/byok-providers.ts";
import type { Author } from "../../lib/author.ts";
import type { Clock } from "../../lib/clock.ts";
import { GatewayError } from "../../lib/errors.ts";
import { providerKeyInvalid } from "../../lib/events/provider-key-invalid.ts";
import { newId } from "../../lib/ids.ts";
import type { Keyring } from "../../lib/keyring.ts";
import { type EgressGuard, EgressRefused, NameNotResolved } from "../../platform/egress/guard.ts";
import { type Provider, ProviderFailure } from "../../providers/interface.ts";

/** Provider keys of one organization. */
export const MAX_PROVIDER_KEYS = 100;
/** The number of characters shown of a key. A short key shows less than a quarter. */
const MAX_PREFIX_CHARACTERS = 8;
const SHOWN_FRACTION = 4;

export interface ProviderKeysDependencies {
  readonly sql: Database;
  readonly keyring: Keyring;
  readonly clock: Clock;
  readonly guard: EgressGuard;
  readonly byokProviders: ByokProviders;
  readonly byokKeys: ByokKeys;
}

export interface NewKey {
  readonly provider: string;
  readonly key: string;
  readonly name: string | undefined;
  readonly baseUrl: string | undefined;
}

/**
 * An organization's provider keys (BYOK; contract §7). Every method that takes an id throws 404 if
 * the organization has no such key.
 */
export class ProviderKeys {
  readonly #dependencies: ProviderKeysDependencies;

  constructor(dependencies: ProviderKeysDependencies) {
    this.#dependencies = dependencies;
  }

  /** Returns the providers that accept keys. `needsBaseUrl` is true if a key requires a base URL. */
  providersFor(organizationId: string): { readonly id: string; readonly needsBaseUrl: boolean }[] {
    const { byokProviders } = this.#dependencies;
    return byokProviders
      .idsFor(organizationId)
      .map((id) => ({ id, needsBaseUrl: byokProviders.needsBaseUrl(id) }));
  }

  /**
   * Stores a key after the provider has accepted it. Throws:
   *
   * - 400 if the provider rejects the key or is unknown, or if `base_url` is not public,
   * - 403 if the organization has the maximum number of keys,
   * - 502 if the provider cannot be reached.
   */
  async add(organizationId: string, key: NewKey, author: Author): Promise<ProviderKeyRecord> {
    const { sql, keyring, clock, byokKeys } = this.#dependencies;
    const baseUrl = key.baseUrl === undefined ? null : await this.#checkedUrl(key.baseUrl);
    try {
      await this.#assertAccepted(organizationId, key, baseUrl);
    } catch (error) {
      if (error instanceof GatewayError && error.code === "invalid_provider_key") {
        const data = { provider_key_id: null, provider: key.provider };
        const event = providerKeyInvalid.build(newId("evt"), organizationId, data);
        await insertOutboxEvents(sql, [event]);
      }
      throw error;
    }
    const plain = new TextEncoder().encode(key.key);
    const record = await insertProviderKey(
      authored(sql, author),
      {
        id: newId("pk"),
        organizationId,
        providerId: key.provider,
        name: key.name ?? key.provider,
        keyPrefix: prefixOf(key.key),
        baseUrl,
        secret: (keyId) => keyring.sealUnder(keyId, plain),
        createdAtMs: clock.nowMs(),
      },
      MAX_PROVIDER_KEYS,
    );
    if (record === undefined) {
      throw new GatewayError(
        "quota_exceeded",
        `An organization can have at most ${MAX_PROVIDER_KEYS} provider keys.`,
      );
    }
    byokKeys.forget(organizationId);
    return record;
  }

  list(organizationId: string): Promise<ProviderKeyRecord[]> {
    return listProviderKeys(this.#dependencies.sql, organizationId);
  }

  async remove(organizationId: string, id: string, author: Author): Promise<void> {
    const { sql, byokKeys } = this.#dependencies;
    const isDeleted = await deleteProviderKey(authored(sql, author), { id, organizationId });
    byokKeys.forget(organizationId);
    if (isDeleted) return;
    throw new GatewayError("provider_key_not_found", "There is no such provider key.");
  }

  async #checkedUrl(text: string): Promise<string> {
    try {
      const { url } = await this.#dependencies.guard.check(text);
      if (url.search === "" && url.hash === "") return url.href.replace(/\/+$/, "");
      throw new EgressRefused("must not have a query or a fragment");
    } catch (error) {
      if (!(error instanceof EgressRefused || error instanceof NameNotResolved)) throw error;
      const problem = error instanceof EgressRefused ? error.message : "has no address";
      throw new GatewayError("invalid_body", `base_url ${problem}.`, {
        param: "base_url",
        cause: error,
      });
    }
  }

  async #assertAccepted(
    organizationId: string,
    { provider: providerId, key }: NewKey,
    baseUrl: string | null,
  ) {
    const { byokProviders } = this.#dependencies;
    const ids = byokProviders.idsFor(organizationId);
    const needsUrl = ids.includes(providerId) && byokProviders.needsBaseUrl(providerId);
    if (baseUrl === null && needsUrl) {
      const message =
        "base_url is required: the gateway's server for this provider accepts no keys.";
      throw new GatewayError("invalid_body", message, { param: "base_url" });
    }
    let provider: Provider | undefined;
    try {
      const account = { providerId, apiKey: key, baseUrl };
      provider = ids.includes(providerId) ? byokProviders.make(account) : undefined;
    } catch (error) {
      throw new GatewayError(
        "invalid_provider_key",
        "The key does not have the format of this provider's keys.",
        { param: "key", cause: error },
      );
    }
    if (provider === undefined) {
      throw new GatewayError(
        "invalid_body",
        `provider must be a configured provider that accepts keys: ${ids.join(", ") || "none"}.`,
        { param: "provider" },
      );
    }
    try {
      await provider.checkKey?.();
    } catch (error) {
      if (!(error instanceof ProviderFailure)) throw error;
      if (error.kind === "misconfigured") {
        throw new GatewayError("invalid_provider_key", "The provider rejected the key.", {
          param: "key",
          cause: error,
        });
      }
      throw new GatewayError(
        "provider_error",
        "The key was not stored: the provider could not be reached to verify it.",
        { cause: error },
      );
    }
  }
}

/** Returns the part of a key that is shown to recognise it by. */
export function prefixOf(key: string): string {
  return key.slice(0, Math.min(MAX_PREFIX_CHARACTERS, Math.floor(key.length / SHOWN_FRACTION)));
}
