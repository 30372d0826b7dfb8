import type { OrganizationActors } from "../../../actors/organization/actor.ts";
import { authored } from "../../../db/authored.ts";
import type { Database, DatabaseTransaction } from "../../../db/client.ts";
import { setGuardrailDefault } from "../../../db/queries/definitions.ts";
import { insertOperatorKey, type OperatorKey } from "../../../db/queries/operator-keys.ts";
import {
  changeOrganization,
  createOrganization,
  findOperatedOrganization,
  hasOrganizations,
  listOperatedOrganizations,
  type NewOrganization,
  type OperatedOrganization,
  type OrganizationSettings,
} from "../../../db/queries/organizations.ts";
import { endSubscriptionOf, isSubscribing } from "../../../db/queries/plan-subscriptions.ts";
import type { CreditOrders } from "../../billing/ledger/credit-orders.ts";
import type { Suspensions } from "../../http/authentication.ts";
import type { DefinitionCache } from "../../inference/definitions/definition-cache.ts";
import { generateApiKey, hashApiKey, keyPrefix } from "../../lib/api-key-format.ts";
import type { Author } from "../../lib/author.ts";
import type { Clock } from "../../lib/clock.ts";
import { GatewayError } from "../../lib/errors.ts";
import { newId } from "../../lib/ids.ts";
import { usdText } from "../../lib/money.ts";
import { planOf } from "../../lib/plans.ts";
import { newKey } from "../keys/api-keys.ts";

interface OrganizationAdministrationDependencies {
  readonly sql: Database;
  readonly clock: Clock;
  readonly organizations: OrganizationActors;
  readonly suspensions: Suspensions;
  readonly orders: CreditOrders;
  readonly definitions: DefinitionCache;
  /**
   * Plan and starting credit of a new organization if the request states none. Credit in nano-USD.
   */
  readonly defaults: { readonly plan: string; readonly startingCreditNano: bigint };
}

export interface OrganizationChange extends Partial<OrganizationSettings> {
  /**
   * Credit limit in nano-USD. Null means no limit. If undefined, the limit stays, or follows a
   * changed plan.
   */
  readonly creditLimitNano?: bigint | null;
  /**
   * Names or ids of guardrails by key id. The entry "" applies to the whole organization; null
   * removes a guardrail.
   */
  readonly guardrails?: Readonly<Record<string, string | null>>;
}

/**
 * Changes an organization's settings. If the plan changes, requests the end of a subscription that
 * pays for a different plan. Throws 409 while the organization is subscribing to a plan.
 */
export async function applySettings(
  sql: DatabaseTransaction,
  id: string,
  settings: Partial<OrganizationSettings>,
): Promise<void> {
  await changeOrganization(sql, id, settings);
  const { plan } = settings;
  if (plan !== undefined && !(await endSubscriptionOf(sql, id, plan))) throw subscribing();
}

/**
 * Throws 409 if the plan would change while the organization is subscribing to one. For steps that
 * come before the settings are changed.
 */
export async function assertNotSubscribing(
  sql: Database,
  id: string,
  { plan }: Partial<OrganizationSettings>,
): Promise<void> {
  if (plan === undefined) return;
  if (await isSubscribing(sql, id)) throw subscribing();
}

function subscribing(): GatewayError {
  return new GatewayError(
    "subscription_changing",
    "The organization is currently subscribing to a plan. Try again.",
    { param: "plan" },
  );
}

/**
 * Operations of operators on organizations. Changes take effect on every instance within a second.
 */
export class OrganizationAdministration {
  readonly #dependencies: OrganizationAdministrationDependencies;

  constructor(dependencies: OrganizationAdministrationDependencies) {
    this.#dependencies = dependencies;
  }

  list(page: { readonly limit: number; readonly offset: number }) {
    return listOperatedOrganizations(this.#dependencies.sql, page);
  }

  /** Returns an organization. Throws 404 if it does not exist. */
  async find(id: string): Promise<OperatedOrganization> {
    const organization = await findOperatedOrganization(this.#dependencies.sql, id);
    if (organization !== undefined) return organization;
    throw new GatewayError("organization_not_found", "There is no such organization.");
  }

  /**
   * Creates an organization and its first keys, in one transaction. The keys are shown only once.
   */
  async create(
    request: OrganizationChange & { readonly name: string; readonly startingCreditNano?: bigint },
    author: Author,
  ): Promise<{ organization: OperatedOrganization; prepared: PreparedOrganization }> {
    const { sql, clock, defaults } = this.#dependencies;
    const { creditLimitNano, startingCreditNano, name, plan, guardrails: _, ...settings } = request;
    const prepared = prepareOrganization(
      {
        name,
        plan: plan ?? defaults.plan,
        startingCreditNano: startingCreditNano ?? defaults.startingCreditNano,
      },
      clock.nowMs(),
    );
    const { id } = prepared.organization;
    const limit = creditLimitNano === undefined ? {} : { creditLimitNano };
    await authored(sql, author).begin(async (transaction) => {
      await createOrganization(transaction, { ...prepared.organization, ...limit });
      await changeOrganization(transaction, id, settings);
    });
    this.#forget(id, settings);
    return { organization: await this.find(id), prepared };
  }

  /**
   * Changes an organization. Throws 404 if the change names a guardrail or key that does not exist.
   * Throws, and changes nothing:
   *
   * - 404 if the organization does not exist,
   * - 402 if the balance is below the minimum that the new credit limit allows,
   * - 409 if the organization is currently subscribing to a plan.
   *
   * The limit is set first, so that repeating an interrupted call completes it.
   */
  async change(
    id: string,
    change: OrganizationChange,
    author: Author,
  ): Promise<OperatedOrganization> {
    const { creditLimitNano: _, guardrails = {}, ...settings } = change;
    const before = await this.find(id);
    await assertNotSubscribing(this.#dependencies.sql, id, settings);
    const limit = creditLimitAfter(before, change);
    if (limit !== before.creditLimitNano) await this.#setCreditLimit(before, limit, author);
    const { sql, definitions } = this.#dependencies;
    await authored(sql, author).begin(async (transaction) => {
      await applySettings(transaction, id, settings);
      for (const [keyId, nameOrId] of Object.entries(guardrails)) {
        const isSet = await setGuardrailDefault(transaction, id, keyId, nameOrId);
        if (!isSet) throw noGuardrail();
      }
    });
    definitions.forget(id);
    this.#forget(id, settings);
    return this.find(id);
  }

  async #setCreditLimit(
    { id, balanceNano }: OperatedOrganization,
    creditLimitNano: bigint | null,
    author: Author,
  ): Promise<void> {
    const { isRefused } = await this.#dependencies.orders.give({
      kind: "credit-limit",
      id: newId("cmd"),
      organizationId: id,
      creditLimitNano,
      author,
    });
    if (!isRefused) return;
    throw new GatewayError(
      "insufficient_credits",
      `The balance is ${usdText(balanceNano)} USD, and running requests may hold a part of it: more than the credit limit of ${usdText(creditLimitNano ?? 0n)} USD is used or held.`,
      { param: "credit_limit_usd" },
    );
  }

  /**
   * Drops cached state. The next request on this instance sees the change; the change feed notifies
   * other instances.
   */
  #forget(id: string, { isSuspended }: Partial<OrganizationSettings>): void {
    const { organizations, suspensions } = this.#dependencies;
    organizations.forget(id);
    if (isSuspended !== undefined) suspensions.forget();
  }
}

function noGuardrail(): GatewayError {
  const message = "The organization has no such guardrail, or no such key.";
  return new GatewayError("guardrail_not_found", message, { param: "guardrail" });
}

/**
 * Returns the credit limit after a change: the limit that the change states, or else the limit of
 * the new plan. If the current limit differs from the limit of the current plan, an operator has
 * set it, and it stays.
 */
export function creditLimitAfter(
  before: OperatedOrganization,
  { creditLimitNano, plan = before.plan }: OrganizationChange,
): bigint | null {
  if (creditLimitNano !== undefined) return creditLimitNano;
  const isPlanLimit = before.creditLimitNano === planOf(before.plan).creditLimitNano;
  return isPlanLimit ? planOf(plan).creditLimitNano : before.creditLimitNano;
}

export interface OrganizationRequest {
  readonly name: string;
  readonly plan: string;
  readonly startingCreditNano: bigint;
  /** Secrets to use instead of generated ones. */
  readonly managementKey?: string | undefined;
  readonly secretKey?: string | undefined;
}

export interface PreparedOrganization {
  readonly organization: NewOrganization;
  /** Secret of the management key. Never shown again. */
  readonly managementKey: string;
  readonly secretKey: string;
}

/** Returns a new organization with a management key, a secret key and a starting credit. */
export function prepareOrganization(
  request: OrganizationRequest,
  nowMs: number,
): PreparedOrganization {
  const id = newId("org");
  const managementKey = request.managementKey ?? generateApiKey("management").key;
  const secretKey = request.secretKey ?? generateApiKey("secret").key;
  return {
    organization: {
      id,
      name: request.name,
      plan: request.plan,
      keys: [
        newKey({
          organizationId: id,
          kind: "management",
          secret: managementKey,
          nowMs,
          settings: { name: "Default management key" },
        }),
        newKey({
          organizationId: id,
          kind: "secret",
          secret: secretKey,
          nowMs,
          settings: { name: "Default secret key" },
        }),
      ],
      creditLimitNano: planOf(request.plan).creditLimitNano,
      startingCreditNano: request.startingCreditNano,
      creditTransactionId: newId("txn"),
    },
    managementKey,
    secretKey,
  };
}

const FIRST_START_LOCK = 7_203_114_503;

/**
 * Creates the default organization if the database has none. Calls `keep` with the keys before the
 * commit, so that a crash never leaves an organization whose keys are lost.
 */
export async function createFirstOrganization(
  sql: Database,
  request: OrganizationRequest,
  nowMs: number,
  keep: (prepared: PreparedOrganization, transaction: DatabaseTransaction) => Promise<void>,
): Promise<PreparedOrganization | undefined> {
  return sql.begin(async (transaction) => {
    await transaction`SELECT pg_advisory_xact_lock(${FIRST_START_LOCK})`;
    if (await hasOrganizations(transaction)) return undefined;
    const prepared = prepareOrganization(request, nowMs);
    await createOrganization(transaction, prepared.organization);
    await keep(prepared, transaction);
    return prepared;
  });
}

interface OperatorKeyRequest {
  readonly name: string;
  /** A key to use instead of a generated one. */
  readonly secret?: string;
  readonly nowMs: number;
}

/** Adds an operator key. Does not change an operator key that already exists or was revoked. */
export async function addOperatorKey(
  sql: Database,
  { name, secret = generateApiKey("operator").key, nowMs }: OperatorKeyRequest,
): Promise<{ key: OperatorKey; secret: string; isNew: boolean }> {
  const key = { id: newId("opk"), name, keyPrefix: keyPrefix(secret), createdAtMs: nowMs };
  const isNew = await insertOperatorKey(sql, { ...key, keyHash: hashApiKey(secret) });
  return { key, secret, isNew };
}
