import type { OrganizationActors } from "../../../actors/organization/actor.ts";
import type { Database } from "../../../db/client.ts";
import { listScimTokens } from "../../../db/queries/api-keys.ts";
import { generateApiKey } from "../../lib/api-key-format.ts";
import type { ApiKeyRecord } from "../../lib/api-key-record.ts";
import type { Author } from "../../lib/author.ts";
import type { Clock } from "../../lib/clock.ts";
import { newId } from "../../lib/ids.ts";
import { newKey, withGatewayErrors } from "../keys/api-keys.ts";
import { assertMayGrant, type Granter } from "../members/members.ts";

interface ScimTokensDependencies {
  readonly sql: Database;
  readonly clock: Clock;
  readonly organizations: OrganizationActors;
}

/** Tokens with which identity providers manage members and teams by SCIM. They are keys that reach nothing else. */
export class ScimTokens {
  readonly #dependencies: ScimTokensDependencies;

  constructor(dependencies: ScimTokensDependencies) {
    this.#dependencies = dependencies;
  }

  /**
   * Creates a token. Resolves with its record and its secret, which is never shown again. Throws 403 if the caller
   * cannot manage owners, and 409 if the name is taken.
   */
  async create(
    granter: Granter,
    name: string,
    author: Author,
  ): Promise<{ record: ApiKeyRecord; secret: string }> {
    // The token can change the address of an owner, and deactivate one.
    assertMayGrant(granter, "owner");
    const { clock, organizations } = this.#dependencies;
    const { organizationId } = granter.key;
    const { key: secret } = generateApiKey("scim");
    const record = newKey({
      ...{ organizationId, kind: "scim" as const, secret, nowMs: clock.nowMs() },
      settings: { name, scopes: [] },
    });
    const created = { key: record, eventId: newId("evt"), author };
    await withGatewayErrors(organizations.get(organizationId).ask("createKey", created));
    return { record, secret };
  }

  list(organizationId: string): Promise<ApiKeyRecord[]> {
    return listScimTokens(this.#dependencies.sql, organizationId);
  }
}
