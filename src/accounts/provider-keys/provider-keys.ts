import { authored } from "../../../db/authored.ts";
import type { Database } from "../../../db/client.ts";
import { insertOutboxEvents } from "../../../db/queries/outbox.ts";
import {
  deleteProviderKey,
  insertProviderKey,
  listProviderKeys,
  type ProviderKeyRecord,
} from "../../../db/queries/provider-keys.ts";
import type { OwnKeys } from "../../inference/call/routing/own-keys.ts";
import type { OwnProviders } from "../../inference/call/routing/own-providers.ts";
import { type EgressGuard, EgressRefused, NameNotResolved } from "../../platform/egress/guard.ts";
import { providerKeyInvalid } from "../../lib/events/provider-key-invalid.ts";
import type { Author } from "../../lib/author.ts";
import type { Clock } from "../../lib/clock.ts";
import { GatewayError } from "../../lib/errors.ts";
import { newId } from "../../lib/ids.ts";
import type { Keyring } from "../../lib/keyring.ts";
import { type Provider, ProviderFailure } from "../../providers/interface.ts";

/** Of one organization. */
export const MAX_PROVIDER_KEYS = 100;
/** A key is never shown in full: of a short one not even a quarter. */
const MAX_PREFIX_CHARACTERS = 8;
const SHOWN_PART = 4;

export interface ProviderKeysDependencies {
  readonly sql: Database;
  readonly keyring: Keyring;
  readonly clock: Clock;
  readonly guard: EgressGuard;
  readonly ownProviders: OwnProviders;
  readonly ownKeys: OwnKeys;
}

export interface NewKey {
  readonly provider: string;
  readonly key: string;
  readonly name: string | undefined;
  readonly baseUrl: string | undefined;
}

/** Keys for providers that an organization brings itself (contract §7). Every method throws 404 for another's. */
export class ProviderKeys {
  readonly #dependencies: ProviderKeysDependencies;

  constructor(dependencies: ProviderKeysDependencies) {
    this.#dependencies = dependencies;
  }

  /** Ids of the providers that take keys, and whether a key has to come with an address. */
  get providers(): { readonly id: string; readonly needsBaseUrl: boolean }[] {
    const { ownProviders } = this.#dependencies;
    return ownProviders.ids.map((id) => ({ id, needsBaseUrl: ownProviders.needsBaseUrl(id) }));
  }

  /**
   * Stores a key that the provider takes. Throws 400 for one that it refuses, for an unknown provider and a
   * `base_url` that is not public, 403 where there are too many, 502 where the provider cannot be asked.
   */
  async add(organizationId: string, key: NewKey, author: Author): Promise<ProviderKeyRecord> {
    const { sql, keyring, clock, ownKeys } = this.#dependencies;
    const baseUrl = key.baseUrl === undefined ? null : await this.#checkedUrl(key.baseUrl);
    try {
      await this.#assertTaken(key, baseUrl);
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
    ownKeys.forget(organizationId);
    return record;
  }

  list(organizationId: string): Promise<ProviderKeyRecord[]> {
    return listProviderKeys(this.#dependencies.sql, organizationId);
  }

  async remove(organizationId: string, id: string, author: Author): Promise<void> {
    const { sql, ownKeys } = this.#dependencies;
    const isDeleted = await deleteProviderKey(authored(sql, author), { id, organizationId });
    ownKeys.forget(organizationId);
    if (isDeleted) return;
    throw new GatewayError("provider_key_not_found", "There is no such provider key.");
  }

  async #checkedUrl(text: string): Promise<string> {
    try {
      const { url } = await this.#dependencies.guard.check(text);
      if (url.search === "" && url.hash === "") return url.href.replace(/\/+$/, "");
      throw new EgressRefused("must have neither a query nor a fragment");
    } catch (error) {
      if (!(error instanceof EgressRefused || error instanceof NameNotResolved)) throw error;
      const problem = error instanceof EgressRefused ? error.message : "has no address";
      throw new GatewayError("invalid_body", `base_url ${problem}.`, {
        param: "base_url",
        cause: error,
      });
    }
  }

  async #assertTaken({ provider: providerId, key }: NewKey, baseUrl: string | null) {
    const { ownProviders } = this.#dependencies;
    if (baseUrl === null && ownProviders.needsBaseUrl(providerId)) {
      const message =
        "base_url is required: the gateway's own server of this provider has no keys.";
      throw new GatewayError("invalid_body", message, { param: "base_url" });
    }
    let provider: Provider | undefined;
    try {
      provider = ownProviders.make({ providerId, apiKey: key, baseUrl });
    } catch (error) {
      throw new GatewayError(
        "invalid_provider_key",
        "The key is not of a form that the provider takes.",
        { param: "key", cause: error },
      );
    }
    if (provider === undefined) {
      throw new GatewayError(
        "invalid_body",
        `provider must be one that this gateway calls and that takes keys: ${ownProviders.ids.join(", ") || "there is none"}.`,
        { param: "provider" },
      );
    }
    try {
      await provider.checkKey?.();
    } catch (error) {
      if (!(error instanceof ProviderFailure)) throw error;
      if (error.kind === "misconfigured") {
        throw new GatewayError("invalid_provider_key", "The provider refuses the key.", {
          param: "key",
          cause: error,
        });
      }
      throw new GatewayError(
        "provider_error",
        "The key was not stored: the provider could not be asked whether it takes it.",
        { cause: error },
      );
    }
  }
}

function prefixOf(key: string): string {
  return key.slice(0, Math.min(MAX_PREFIX_CHARACTERS, Math.floor(key.length / SHOWN_PART)));
}
