import type { Database, DatabaseTransaction } from "../client.ts";
import { type RowOf, recordReader } from "../rows.ts";
import { paymentMethods } from "../schema/payments.ts";

type MethodRow = RowOf<typeof paymentMethods>;

const storedMethod = recordReader(paymentMethods, "processor", "state", "setupReference");

/** A payment method of an organization that is no longer pending. */
export type PaymentMethod = ReturnType<typeof storedMethod> & {
  /** Id of the method at the processor. */
  readonly reference: string;
  readonly type: string;
};

const methodOf = (row: MethodRow) => storedMethod(row) as PaymentMethod;

/** The methods of an organization at a processor. */
export interface MethodOwner {
  readonly organizationId: string;
  readonly processor: string;
}

/** Lists methods, oldest first. */
export async function listPaymentMethods(
  sql: Database,
  { organizationId, processor }: MethodOwner,
): Promise<PaymentMethod[]> {
  const rows = await sql<MethodRow[]>`SELECT * FROM payment_methods
    WHERE organization_id = ${organizationId} AND processor = ${processor} AND state = 'active'
    ORDER BY created_at, id`;
  return rows.map(methodOf);
}

/** Finds a method by its id or by the processor's id. Without one, returns the default. */
export async function findPaymentMethod(
  sql: Database,
  { organizationId, processor }: MethodOwner,
  id: string | undefined,
): Promise<PaymentMethod | undefined> {
  const [row] = await sql<MethodRow[]>`SELECT * FROM payment_methods
    WHERE organization_id = ${organizationId} AND processor = ${processor} AND state = 'active'
      AND ${id === undefined ? sql`is_default` : sql`(id = ${id} OR reference = ${id})`}
    ORDER BY id = ${id ?? ""} DESC LIMIT 1`;
  return row && methodOf(row);
}

export async function insertPendingMethod(
  sql: Database,
  method: MethodOwner & { readonly id: string; readonly setupReference: string },
): Promise<void> {
  await sql.begin(
    (transaction) => transaction`
      INSERT INTO payment_methods (id, organization_id, processor, state, setup_reference)
      VALUES (${method.id}, ${method.organizationId}, ${method.processor}, 'pending',
        ${method.setupReference})`,
  );
}

export interface PendingMethod {
  readonly id: string;
  readonly organizationId: string;
  readonly setupReference: string;
}

/**
 * Returns methods that are being entered on the processor's page. If there are many, returns any of them.
 */
export async function pendingPaymentMethods(
  sql: Database,
  processor: string,
  which: { readonly id: string } | { readonly limit: number },
): Promise<PendingMethod[]> {
  const rows = await sql<{ id: string; organization_id: string; setup_reference: string }[]>`
    SELECT id, organization_id, setup_reference FROM payment_methods
    WHERE state = 'pending' AND processor = ${processor}
      ${"id" in which ? sql`AND id = ${which.id}` : sql``}
    ORDER BY random() LIMIT ${"limit" in which ? which.limit : 1}`;
  return rows.map((row) => ({
    id: row.id,
    organizationId: row.organization_id,
    setupReference: row.setup_reference,
  }));
}

export async function removePendingMethod(sql: Database, id: string): Promise<void> {
  await sql`DELETE FROM payment_methods WHERE id = ${id} AND state = 'pending'`;
}

/**
 * Adds a method, or completes a pending one, once. If the organization has no default, it becomes the default. Does
 * nothing if the organization has the method already.
 */
export async function activatePaymentMethod(
  sql: Database,
  method: MethodOwner & Pick<PaymentMethod, "id" | "reference" | "type" | "brand" | "last4">,
): Promise<PaymentMethod> {
  return await sql.begin(async (transaction) => {
    await lockMethods(transaction, method.organizationId);
    const [existing] = await transaction<MethodRow[]>`SELECT * FROM payment_methods
      WHERE organization_id = ${method.organizationId} AND processor = ${method.processor}
        AND state = 'active' AND reference = ${method.reference}`;
    if (existing !== undefined) {
      await transaction`DELETE FROM payment_methods WHERE id = ${method.id} AND state = 'pending'`;
      return methodOf(existing);
    }
    const [row] = await transaction<MethodRow[]>`
      INSERT INTO payment_methods AS m (id, organization_id, processor, state, reference, type, brand,
        last4, is_default)
      VALUES (${method.id}, ${method.organizationId}, ${method.processor}, 'active',
        ${method.reference}, ${method.type}, ${method.brand}, ${method.last4},
        NOT EXISTS (SELECT 1 FROM payment_methods WHERE organization_id = ${method.organizationId}
          AND processor = ${method.processor} AND is_default))
      ON CONFLICT (id) DO UPDATE SET state = 'active', reference = EXCLUDED.reference,
        type = EXCLUDED.type, brand = EXCLUDED.brand, last4 = EXCLUDED.last4,
        is_default = EXCLUDED.is_default
      RETURNING *`;
    return methodOf(row!);
  });
}

/** Returns false if the organization has no such method. */
export async function makeDefaultMethod(
  sql: Database,
  { organizationId, processor }: MethodOwner,
  id: string,
): Promise<boolean> {
  return await sql.begin(async (transaction) => {
    await lockMethods(transaction, organizationId);
    const [row] = await transaction`SELECT 1 FROM payment_methods WHERE id = ${id}
      AND organization_id = ${organizationId} AND processor = ${processor} AND state = 'active'`;
    if (row === undefined) return false;
    await transaction`UPDATE payment_methods SET is_default = false
      WHERE organization_id = ${organizationId} AND processor = ${processor} AND is_default`;
    await transaction`UPDATE payment_methods SET is_default = true WHERE id = ${id}`;
    return true;
  });
}

/**
 * Detaches a method. Its row stays, for the payments that name it. Returns false if it does not exist.
 */
export async function detachPaymentMethod(
  sql: Database,
  { organizationId, processor }: MethodOwner,
  id: string,
): Promise<boolean> {
  const detached = await sql.begin(
    (transaction) => transaction`
      UPDATE payment_methods SET state = 'detached', is_default = false
      WHERE id = ${id} AND organization_id = ${organizationId} AND processor = ${processor}
        AND state = 'active'`,
  );
  return detached.count > 0;
}

/** Records that the processor has detached a method. */
export async function noteMethodDetached(
  sql: Database,
  processor: string,
  reference: string,
): Promise<void> {
  await sql`UPDATE payment_methods SET state = 'detached', is_default = false
    WHERE processor = ${processor} AND reference = ${reference} AND state = 'active'`;
}

export async function findPaymentCustomer(
  sql: Database,
  { organizationId, processor }: MethodOwner,
): Promise<string | undefined> {
  const [row] = await sql<{ reference: string }[]>`SELECT reference FROM payment_customers
    WHERE organization_id = ${organizationId} AND processor = ${processor}`;
  return row?.reference;
}

/** Stores a customer. The first one stays, even if two are created at the same time. */
export async function keepPaymentCustomer(
  sql: Database,
  { organizationId, processor }: MethodOwner,
  reference: string,
): Promise<string> {
  await sql`INSERT INTO payment_customers (organization_id, processor, reference)
    VALUES (${organizationId}, ${processor}, ${reference}) ON CONFLICT DO NOTHING`;
  const customer = await findPaymentCustomer(sql, { organizationId, processor });
  return customer!;
}

/** Two methods that are added at the same time must not both become the default. */
async function lockMethods(sql: DatabaseTransaction, organizationId: string): Promise<void> {
  await sql`SELECT 1 FROM organizations WHERE id = ${organizationId} FOR NO KEY UPDATE`;
}
