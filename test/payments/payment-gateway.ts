import { expect } from "bun:test";
import { inOneSnapshot } from "../../db/client.ts";
import type { TestGateway } from "../support/gateway.ts";

export interface TopUp {
  readonly transaction_id: string;
  readonly amount_usd: number;
  readonly new_balance_usd: number;
  readonly created_at: string;
}

export interface PaymentError {
  readonly code: string;
  readonly type: string;
  readonly message: string;
  readonly param: string | null;
  readonly decline_code?: string;
  readonly payment_id?: string;
  readonly authentication_url?: string;
  readonly client_secret?: string;
}

export interface Paying {
  readonly key?: string;
  readonly idempotencyKey?: string;
}

export function topUp(
  gateway: TestGateway,
  body: unknown,
  { key, idempotencyKey }: Paying = {},
): Promise<Response> {
  return gateway.request("POST", "/v1/credits/topup", body, {
    ...(key !== undefined && { key }),
    headers: idempotencyKey === undefined ? {} : { "idempotency-key": idempotencyKey },
  });
}

export async function paid(response: Response): Promise<TopUp> {
  const body = (await response.json()) as TopUp;
  expect({ status: response.status, body }).toMatchObject({ status: 201 });
  return body;
}

export async function refused(response: Response, status: number): Promise<PaymentError> {
  const body = (await response.json()) as { error: PaymentError };
  expect({ status: response.status, body }).toMatchObject({ status });
  return body.error;
}

/** Of an organization, from its transactions, each of which follows from the one before. */
export function balanceNano(gateway: TestGateway, organizationId: string): Promise<bigint> {
  return inOneSnapshot(gateway.sql, async (sql) => {
    const rows = await sql<{ amount_nano: bigint; balance_after_nano: bigint }[]>`
      SELECT amount_nano, balance_after_nano FROM transactions
      WHERE organization_id = ${organizationId} ORDER BY sequence`;
    let balance = 0n;
    for (const row of rows) {
      balance += row.amount_nano;
      expect(row.balance_after_nano).toBe(balance);
    }
    const [account] = await sql<{ nano: bigint }[]>`
      SELECT credit_nano - posted_nano AS nano FROM accounts WHERE id = ${`org:${organizationId}`}`;
    expect(account!.nano).toBe(balance);
    return balance;
  });
}

export async function addMethod(gateway: TestGateway, name: string, key?: string): Promise<string> {
  const added = await gateway.request(
    "POST",
    "/v1/billing/payment_methods",
    { payment_method: name },
    key === undefined ? {} : { key },
  );
  expect(added.status).toBe(201);
  return ((await added.json()) as { id: string }).id;
}
