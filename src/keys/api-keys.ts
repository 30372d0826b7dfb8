import { type Database, sqlState } from "../../db/client.ts";
import { findListedKey, type ListedKey, listKeys } from "../../db/queries/key-list.ts";
import { ScopesNotHeldError, TooManyKeysError } from "../../db/queries/key-write.ts";
import type { RateWindows } from "../cluster/interface.ts";
import { generateApiKey } from "../lib/api-key-format.ts";
import type { ApiKeyRecord, ApiKeySettings } from "../lib/api-key-record.ts";
import type { Clock } from "../lib/clock.ts";
import { GatewayError } from "../lib/errors.ts";
import { newId } from "../lib/ids.ts";
import { utcDay, utcMonth } from "../lib/periods.ts";
import type { ApiKeyActors, OrganizationActors } from "../money/single-node.ts";
import {
  assertMaySee,
  assertMayTouch,
  cannotGrant,
  grantedToExisting,
  grantedToNew,
} from "./key-authority.ts";
import { newKey } from "./new-key.ts";

export interface ApiKeysDependencies {
  readonly sql: Database;
  readonly keys: ApiKeyActors;
  readonly organizations: OrganizationActors;
  readonly clock: Clock;
  readonly rates: RateWindows;
}

const UNIQUE_VIOLATION = "23505";

/** API keys of an organization (spec 4.1). Changes go through the actors that own them. */
export class ApiKeys {
  readonly #dependencies: ApiKeysDependencies;

  constructor(dependencies: ApiKeysDependencies) {
    this.#dependencies = dependencies;
  }

  /** Resolves with the new key and its secret, which is shown this once. Throws 403, 409. */
  async create(
    caller: ApiKeyRecord,
    settings: Partial<ApiKeySettings> & Pick<ApiKeySettings, "name">,
  ): Promise<{ record: ApiKeyRecord; secret: string }> {
    const scopes = grantedToNew(caller, settings.scopes);
    const { organizations, clock } = this.#dependencies;
    const { key: secret } = generateApiKey("secret");
    const record = newKey({
      organizationId: caller.organizationId,
      kind: "secret",
      secret,
      nowMs: clock.nowMs(),
      settings: { ...settings, scopes },
    });
    const organization = organizations.get(caller.organizationId);
    await asRefusal(organization.ask("createKey", { key: record, eventId: newId("evt") }));
    return { record, secret };
  }

  list(
    caller: ApiKeyRecord,
    page: { isActive: boolean | undefined; limit: number; offset: number },
  ): Promise<{ keys: ListedKey[]; total: number }> {
    const { organizationId } = caller;
    return listKeys(this.#dependencies.sql, { organizationId, ...page, ...this.#periods() });
  }

  /** Throws 403, 404. */
  async find(caller: ApiKeyRecord, id: string): Promise<ListedKey> {
    assertMaySee(caller, id);
    const { organizationId } = caller;
    const found = await findListedKey(this.#dependencies.sql, {
      id,
      organizationId,
      ...this.#periods(),
    });
    if (found === undefined) throw notFound();
    return found;
  }

  /** The calling key, and what is left of its rate limit: null where it has none. Throws 404. */
  async own(caller: ApiKeyRecord): Promise<{ key: ListedKey; remainingRpm: number | null }> {
    const key = await this.find(caller, caller.id);
    const { rateLimitRpm } = key.record;
    if (rateLimitRpm === null) return { key, remainingRpm: null };
    const remainingRpm = await this.#dependencies.rates.remaining(caller.id, rateLimitRpm);
    return { key, remainingRpm };
  }

  /** Throws 403, 404, 409. */
  async change(
    caller: ApiKeyRecord,
    id: string,
    changed: Partial<ApiKeySettings>,
  ): Promise<ListedKey> {
    const target = await this.find(caller, id);
    assertMayTouch(caller, target.record);
    const granted = changed.scopes && grantedToExisting(caller, target.record, changed.scopes);
    const key = this.#dependencies.keys.get(id);
    const isChanged = await asRefusal(
      key.ask("update", {
        changed: granted === undefined ? changed : { ...changed, scopes: granted.scopes },
        keptScopes: granted?.keptScopes,
        eventId: newId("evt"),
      }),
    );
    if (!isChanged) throw notFound();
    return this.find(caller, id);
  }

  /** Revokes the key for good. Throws 403, 404. */
  async remove(caller: ApiKeyRecord, id: string): Promise<void> {
    const target = await this.find(caller, id);
    assertMayTouch(caller, target.record);
    const isRemoved = await this.#dependencies.keys
      .get(id)
      .ask("remove", { eventId: newId("evt") });
    if (!isRemoved) throw notFound();
  }

  #periods(): { day: string; monthStart: string } {
    const nowMs = this.#dependencies.clock.nowMs();
    return { day: utcDay(nowMs).start, monthStart: utcMonth(nowMs).start };
  }
}

async function asRefusal<Result>(change: Promise<Result>): Promise<Result> {
  try {
    return await change;
  } catch (error) {
    if (error instanceof ScopesNotHeldError) throw cannotGrant(error.scopes);
    if (error instanceof TooManyKeysError) {
      throw new GatewayError(
        "quota_exceeded",
        `The organization has ${error.maxKeys} API keys, which is as many as it may have. Delete one first.`,
      );
    }
    if (sqlState(error) !== UNIQUE_VIOLATION) throw error;
    throw new GatewayError("name_taken", "The organization has an API key of this name already.", {
      param: "name",
      cause: error,
    });
  }
}

function notFound(): GatewayError {
  return new GatewayError("key_not_found", "There is no such API key.");
}
