import type { Database } from "../../db/client.ts";
import type { Tables } from "./postgres/tables.ts";

/** What of the database is compared, in an order of its own. */
export async function rowsOfReal(real: Database): Promise<unknown> {
  const accounts =
    await real`SELECT id, credit_nano, credit_limit_nano, last_topup_nano, posted_nano, held_nano, sequence, budget_events
    FROM accounts ORDER BY id COLLATE "C"`;
  const holds =
    await real`SELECT id, instance_id, org_account, day_account, month_account, subject_accounts, hold_nano,
      budget_nano FROM holds ORDER BY id COLLATE "C"`;
  const attempts =
    await real`SELECT request_id, instance_id, hold_nano, charge_nano, budget_hold_nano, budget_charge_nano, fee_nano,
      subject_accounts, prompt_tokens, cached_prompt_tokens,
      completion_tokens, reasoning_tokens, quantities, estimated, description
    FROM attempts ORDER BY request_id COLLATE "C"`;
  const transactions = await real`SELECT organization_id, sequence, id, type, amount_nano,
    balance_after_nano, key_id, request_id, refunded_request_id, prompt_tokens, cached_prompt_tokens, completion_tokens,
    reasoning_tokens, quantities, budget_nano, fee_nano FROM transactions ORDER BY organization_id COLLATE "C", sequence`;
  const events =
    await real`SELECT type, data->>'key_id' AS key_id, data->'threshold_percent' AS percent
    FROM outbox ORDER BY id`;
  const instances = await real`SELECT id, alive, is_settled FROM instances ORDER BY id`;
  const plain = (rows: readonly object[]) => rows.map((row) => ({ ...row }));
  return {
    accounts: plain(accounts),
    holds: plain(holds),
    attempts: plain(attempts).map(withNumbers),
    transactions: plain(transactions),
    events: plain(events)
      .map((row) => JSON.stringify(row))
      .sort(),
    instances: plain(instances),
  };
}

/** The same of the model. */
export function rowsOfModel(tables: Tables): unknown {
  const sorted = <Row>(rows: Iterable<Row>, key: (row: Row) => string): Row[] =>
    [...rows].sort((one, other) => (key(one) < key(other) ? -1 : 1));
  return {
    accounts: sorted(tables.accounts.all(), ({ id }) => id).map(
      ({
        id,
        credit_nano,
        credit_limit_nano,
        last_topup_nano,
        posted_nano,
        held_nano,
        sequence,
        budget_events,
      }) => ({
        id,
        credit_nano,
        credit_limit_nano,
        last_topup_nano,
        posted_nano,
        held_nano,
        sequence,
        budget_events,
      }),
    ),
    holds: sorted(tables.holds.all(), ({ id }) => id).map(({ epoch: _, ...row }) => row),
    attempts: sorted(tables.attempts.all(), (row) => row.request_id).map((row) => ({
      request_id: row.request_id,
      instance_id: row.instance_id,
      hold_nano: row.hold_nano,
      charge_nano: row.charge_nano,
      budget_hold_nano: row.budget_hold_nano,
      budget_charge_nano: row.budget_charge_nano,
      fee_nano: row.fee_nano,
      subject_accounts: row.subject_accounts,
      prompt_tokens: row.prompt_tokens,
      cached_prompt_tokens: row.cached_prompt_tokens,
      completion_tokens: row.completion_tokens,
      reasoning_tokens: row.reasoning_tokens,
      quantities: row.quantities,
      estimated: row.estimated,
      description: row.description,
    })),
    transactions: sorted(
      tables.transactions.all(),
      (row) => `${row.organization_id} ${String(row.sequence).padStart(9, "0")}`,
    ).map(({ description: _, ...row }) => row),
    events: [...tables.outbox.all()]
      .map(({ type, data }) =>
        JSON.stringify({
          type,
          key_id: data.key_id ?? null,
          percent: data.threshold_percent ?? null,
        }),
      )
      .sort(),
    instances: sorted(tables.instances.all(), ({ id }) => id).map(({ id, alive, is_settled }) => ({
      id,
      alive,
      is_settled,
    })),
  };
}

function withNumbers(row: Record<string, unknown>): Record<string, unknown> {
  return {
    ...row,
    prompt_tokens: Number(row.prompt_tokens),
    cached_prompt_tokens: Number(row.cached_prompt_tokens),
    completion_tokens: Number(row.completion_tokens),
    reasoning_tokens: Number(row.reasoning_tokens),
  };
}

/** The first rows of the model, in the real database. */
export async function copyRows(real: Database, tables: Tables): Promise<void> {
  for (const { id, name, plan } of tables.organizations.all()) {
    await real`INSERT INTO organizations (id, name, plan) VALUES (${id}, ${name}, ${plan})`;
  }
  for (const { deleted_at: _, ...key } of tables.apiKeys.all()) {
    await real`INSERT INTO api_keys ${real({ ...key, key_hash: key.id } as never)}`;
  }
  for (const row of tables.subjectBudgets.all()) {
    await real`INSERT INTO subject_budgets ${real(row as never)}`;
  }
  for (const row of tables.accounts.all()) {
    await real`INSERT INTO accounts ${real(row as never)}`;
  }
  for (const row of tables.transactions.all()) {
    await real`INSERT INTO transactions ${real(row as never)}`;
  }
}
