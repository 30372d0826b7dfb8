import { authored } from "../../../db/authored.ts";
import { type Database, sqlState } from "../../../db/client.ts";
import { UNIQUE_VIOLATION } from "../../../db/error-states.ts";
import {
  addGrantedMembers,
  applyGrants,
  type GrantChange,
  readGrants,
  storeMetRules,
} from "../../../db/queries/identity-grants.ts";
import {
  deleteIdentityProvider,
  findIdentity,
  findIdentityProvider,
  type IdentityProvider,
  type IdentityProviderSettings,
  insertIdentity,
  listIdentityProviders,
  lockProvider,
  storeIdentityProvider,
} from "../../../db/queries/identity-providers.ts";
import { findPerson, insertPerson, noteSignIn, verifyEmail } from "../../../db/queries/people.ts";
import type { Author, Origin } from "../../lib/author.ts";
import type { Clock } from "../../lib/clock.ts";
import { GatewayError } from "../../lib/errors.ts";
import { grantsOf, type IdentityRule, isGranting } from "../../lib/identity-rules.ts";
import { newId } from "../../lib/ids.ts";
import type { Keyring } from "../../lib/keyring.ts";

interface IdentityProvidersDependencies {
  readonly sql: Database;
  readonly clock: Clock;
  readonly keyring: Keyring;
}

/** A person who has come back from an identity provider. */
export interface SignedInIdentity {
  readonly subject: string;
  /** Null if the provider states none, or does not say that it is verified. */
  readonly email: string | null;
  readonly name: string;
  /** The rules that the claims meet. */
  readonly rules: readonly IdentityRule[];
}

const MAX_PROVIDERS = 100;

/** Identity providers that operators configure, and the accounts of people at them. */
export class IdentityProviders {
  readonly #dependencies: IdentityProvidersDependencies;

  constructor(dependencies: IdentityProvidersDependencies) {
    this.#dependencies = dependencies;
  }

  list(): Promise<IdentityProvider[]> {
    return listIdentityProviders(this.#dependencies.sql);
  }

  /** Throws 404 if the provider does not exist. */
  async find(id: string): Promise<IdentityProvider> {
    const provider = await findIdentityProvider(this.#dependencies.sql, id);
    if (provider === undefined) throw notFound();
    return provider;
  }

  clientSecretOf({ secret }: IdentityProvider): string {
    return new TextDecoder().decode(this.#dependencies.keyring.open(secret));
  }

  /** Creates a provider. Throws 409 if the name is taken, and 403 if there are too many. */
  async create(
    settings: IdentityProviderSettings,
    clientSecret: string,
    author: Author,
  ): Promise<IdentityProvider> {
    if ((await this.list()).length >= MAX_PROVIDERS) {
      const message = `A gateway can have at most ${MAX_PROVIDERS} identity providers.`;
      throw new GatewayError("quota_exceeded", message);
    }
    return (await this.#store(newId("idp"), settings, clientSecret, { author, isNew: true }))!;
  }

  /** Changes settings. Throws 404, and 409 if the name is taken. Roles of deleted rules end, and roles and teams of changed ones change; new rules count from the next sign-in. */
  async change(
    id: string,
    settings: Partial<IdentityProviderSettings>,
    clientSecret: string | undefined,
    author: Author,
  ): Promise<IdentityProvider> {
    const changed = await this.#store(id, settings, clientSecret, { author, isNew: false });
    if (changed === undefined) throw notFound();
    return changed;
  }

  /** Deletes a provider. Its people keep their accounts. Roles that only its rules grant end. Throws 404. */
  async remove(id: string, author: Author): Promise<GrantChange> {
    const sql = authored(this.#dependencies.sql, author);
    const change = await deleteIdentityProvider(sql, id);
    if (change === undefined) throw notFound();
    return change;
  }

  async #store(
    id: string,
    settings: Partial<IdentityProviderSettings>,
    clientSecret: string | undefined,
    { author, isNew }: { readonly author: Author; readonly isNew: boolean },
  ): Promise<IdentityProvider | undefined> {
    const { sql, clock, keyring } = this.#dependencies;
    const plain = clientSecret === undefined ? undefined : new TextEncoder().encode(clientSecret);
    const seal = plain && ((keyId: string) => keyring.sealUnder(keyId, plain));
    try {
      return await storeIdentityProvider(authored(sql, author), id, settings, {
        ...(seal !== undefined && { seal }),
        ...{ isNew, nowMs: clock.nowMs() },
      });
    } catch (error) {
      if (sqlState(error) !== UNIQUE_VIOLATION) throw error;
      const message = "There is already an identity provider with this name.";
      throw new GatewayError("name_taken", message, { param: "name", cause: error });
    }
  }

  /**
   * Signs a person in: finds the account by its identity, or by a verified address, or creates it, and makes the roles
   * that the provider grants equal to its rules. Returns the id of the person, or undefined if the rules grant nothing;
   * roles that they granted before have ended then too.
   */
  async signIn(
    provider: IdentityProvider,
    identity: SignedInIdentity,
    origin: Origin,
  ): Promise<string | undefined> {
    const providerId = provider.id;
    const { sql, clock } = this.#dependencies;
    const nowMs = clock.nowMs();
    const author: Author = {
      ...{ kind: "person", id: identity.email ?? identity.subject, name: identity.name },
      ...{ via: "dashboard" as const, ...origin },
    };
    const personId = await authored(sql, author).begin(async (transaction) => {
      const current = await lockProvider(transaction, providerId);
      if (current === undefined) return undefined;
      // Sign-ins of one identity run one after another, so that it gets one account.
      await transaction`SELECT pg_advisory_xact_lock(hashtextextended(${`${providerId} ${identity.subject}`}, 0))`;
      const isGranted = isGranting(grantsOf(identity.rules));
      let known = await findIdentity(transaction, providerId, identity.subject);
      if (known === undefined && isGranted && identity.email !== null) {
        const person = await findPerson(transaction, { email: identity.email });
        // A provider that grants no role of operators must not open the account of one.
        const opensOperator = person?.operatorRole != null && !grantsOperators(current);
        if (opensOperator) return undefined;
        known = person?.id ?? newId("usr");
        if (person === undefined) {
          const { email, name } = { ...identity, email: identity.email };
          await insertPerson(transaction, {
            ...{ id: known, email, name, passwordHash: null, operatorRole: null },
            createdAtMs: nowMs,
          });
        }
        const link = { providerId, subject: identity.subject, personId: known, nowMs };
        await insertIdentity(transaction, link);
        await verifyEmail(transaction, known, nowMs);
      }
      if (known === undefined) return undefined;
      const before = await readGrants(transaction, [known]);
      const account = { providerId, subject: identity.subject, personId: known };
      await storeMetRules(transaction, account, identity.rules);
      await addGrantedMembers(
        transaction,
        { providerId, personId: known, nowMs },
        grantsOf(identity.rules),
        () => newId("mem"),
      );
      await applyGrants(transaction, [known], before);
      return isGranted ? known : undefined;
    });
    if (personId === undefined) return undefined;
    await noteSignIn(sql, personId, nowMs);
    return personId;
  }
}

function grantsOperators(rules: readonly IdentityRule[]): boolean {
  return rules.some((rule) => "operator_role" in rule);
}

function notFound(): GatewayError {
  return new GatewayError("identity_provider_not_found", "There is no such identity provider.");
}
