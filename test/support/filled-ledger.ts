import type { Database } from "../../db/client.ts";

export interface LedgerModel {
  readonly id: string;
  readonly provider: string;
  /** Nano-USD a token. */
  readonly promptNano: number;
  readonly completionNano: number;
  readonly averageMs: number;
}

export interface LedgerPlan {
  /** It has an account, and at most its starting credit. */
  readonly organizationId: string;
  readonly transactions: number;
  readonly fromMs: number;
  readonly beforeMs: number;
  /** Of keys, models, users, sessions and tags the first of their list occur most, the last least. */
  readonly keyIds: readonly string[];
  readonly models: readonly LedgerModel[];
  readonly users: number;
  readonly tags: readonly string[];
  /** The share of requests that state users, sessions and tags. */
  readonly detailed: number;
  /** What a name looks like. */
  nameOf(name: string): string;
}

const ROWS_A_STEP = 500_000;
const TOPUP_EVERY = 5_000;
const TOPUP_NANO = 50_000_000_000;

/**
 * Charges and top-ups as the ledger writes them, numbered without a gap, with a balance that follows from the one
 * before, and what each key has spent by days and months. More requests come by day than by night.
 */
export async function fillLedger(sql: Database, plan: LedgerPlan): Promise<void> {
  const [account] = await sql<{ sequence: bigint }[]>`
    UPDATE accounts SET last_topup_nano = ${TOPUP_NANO} WHERE id = ${`org:${plan.organizationId}`}
    RETURNING sequence`;
  const taken = Number(account!.sequence);
  for (let first = 1; first <= plan.transactions; first += ROWS_A_STEP) {
    await insertStep(sql, plan, taken, first, Math.min(first + ROWS_A_STEP - 1, plan.transactions));
  }
  await sumUpAccounts(sql, plan.organizationId);
}

type Measure = (what: string, run: () => PromiseLike<unknown>) => Promise<unknown>;

const INDEXES: readonly (readonly [what: string, name: string, definition: string])[] = [
  [
    "requests",
    "transactions_request",
    "UNIQUE INDEX transactions_request ON transactions (request_id) WHERE request_id IS NOT NULL",
  ],
  [
    "keys",
    "transactions_of_key",
    "INDEX transactions_of_key ON transactions (organization_id, key_id, sequence)",
  ],
  [
    "models",
    "transactions_of_model",
    "INDEX transactions_of_model ON transactions (organization_id, model, sequence) WHERE model IS NOT NULL",
  ],
];

/** Fills a large ledger sooner: its tables are not logged, and indexes are built at the end. */
export async function inBulk(
  sql: Database,
  fill: () => Promise<void>,
  measure: Measure = async (_, run) => run(),
): Promise<void> {
  for (const [, name] of INDEXES) await sql`DROP INDEX ${sql(name)}`;
  for (const table of ["transactions", "usage_rollups", "usage_subjects"]) {
    await sql`ALTER TABLE ${sql(table)} SET UNLOGGED`;
  }
  await measure("transactions", fill);
  for (const [what, , definition] of INDEXES) {
    await measure(`index of ${what}`, () => sql.unsafe(`CREATE ${definition}`));
  }
  await measure("vacuum", () => sql`VACUUM ANALYZE transactions`);
}

/** A number from 0 to below 1 that depends on the row and the salt alone. */
function chance(sql: Database, salt: number) {
  return sql`(hashint8extended(i, ${salt}) & 1073741823) / 1073741824.0`;
}

async function insertStep(
  sql: Database,
  plan: LedgerPlan,
  taken: number,
  first: number,
  last: number,
): Promise<void> {
  const { organizationId, transactions, fromMs, beforeMs, keyIds, models, tags } = plan;
  const days = (beforeMs - fromMs) / 86_400_000;
  const column = (name: keyof LedgerModel) => sql.array(models.map((model) => `${model[name]}`));
  const name = (prefix: string) => {
    const [before, after] = plan.nameOf(`${prefix}#`).split("#") as [string, string];
    return (number: ReturnType<Database>) => sql`${before}::text || ${number} || ${after}::text`;
  };
  await sql`
    WITH models AS (
      SELECT * FROM unnest(${column("id")}::text[], ${column("provider")}::text[], ${column("promptNano")}::bigint[],
        ${column("completionNano")}::bigint[], ${column("averageMs")}::integer[])
        WITH ORDINALITY AS m (model, provider, prompt_nano, completion_nano, average_ms, place)
    ), drawn AS (
      SELECT i, i % ${TOPUP_EVERY} = 1 AS is_topup,
        (${sql.array([...keyIds])}::text[])[1 + floor(${keyIds.length}::integer * power(${chance(sql, 1)}, 3))::integer] AS key_id,
        1 + floor(${models.length}::integer * power(${chance(sql, 2)}, 3))::integer AS model_place,
        (40 + 2400 * power(${chance(sql, 3)}, 2))::bigint AS prompt_tokens,
        (10 + 500 * power(${chance(sql, 4)}, 2))::bigint AS completion_tokens,
        ${chance(sql, 5)} AS slowness, ${chance(sql, 6)} AS fate, ${chance(sql, 7)} < ${plan.detailed}::float8 AS is_detailed,
        floor(${plan.users}::integer * power(${chance(sql, 8)}, 3))::integer AS user_number, ${chance(sql, 9)} AS other,
        (i - 1) * ${days}::float8 / ${transactions}::float8 AS day
      FROM generate_series(${first}::bigint, ${last}::bigint) i
    ), priced AS (
      SELECT d.*, m.model, m.provider,
        CASE WHEN fate < 0.3 THEN prompt_tokens * 3 / 4 ELSE 0 END AS cached_tokens,
        CASE WHEN is_topup THEN ${TOPUP_NANO}::bigint
          ELSE -(prompt_tokens * prompt_nano + completion_tokens * completion_nano) END AS amount,
        (m.average_ms * (0.3 - 0.7 * ln(1 - slowness)))::integer AS latency_ms,
        -- The curve of a day, which never runs back.
        ${new Date(fromMs)}::timestamptz
          + (floor(day) + (day - floor(day)) - sin(2 * pi() * (day - floor(day))) / 9) * interval '1 day' AS at
      FROM drawn d JOIN models m ON m.place = d.model_place
    )
    INSERT INTO transactions (organization_id, sequence, id, type, amount_nano, balance_after_nano, description,
      key_id, request_id, model, provider, status, prompt_tokens, cached_prompt_tokens, completion_tokens,
      reasoning_tokens, estimated, latency_ms, details, created_at)
    SELECT ${organizationId}, i + ${taken}::integer, 'txn_' || md5(${organizationId} || i),
      CASE WHEN is_topup THEN 'topup' ELSE 'usage' END, amount,
      sum(amount) OVER (ORDER BY i) + coalesce((SELECT balance_after_nano FROM transactions
        WHERE organization_id = ${organizationId} AND sequence = ${first + taken - 1}::bigint), 0),
      CASE WHEN is_topup THEN 'Top-up' ELSE 'Chat completion' END,
      CASE WHEN NOT is_topup THEN key_id END,
      -- As the gateway's own ids begin with their time, which a start reads the latest ones by.
      CASE WHEN NOT is_topup THEN 'req_' || lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0')
        || substr(md5(${organizationId} || i), 1, 20) END,
      CASE WHEN NOT is_topup THEN model END, CASE WHEN NOT is_topup THEN provider END,
      CASE WHEN is_topup THEN NULL WHEN fate > 0.992 THEN 499 ELSE 200 END,
      CASE WHEN NOT is_topup THEN prompt_tokens END, CASE WHEN NOT is_topup THEN cached_tokens END,
      CASE WHEN NOT is_topup THEN completion_tokens END, CASE WHEN NOT is_topup THEN 0 END,
      CASE WHEN NOT is_topup THEN false END, CASE WHEN NOT is_topup THEN latency_ms END,
      CASE WHEN NOT is_topup AND is_detailed THEN jsonb_build_object('user', ${name("user ")(sql`user_number`)},
        'session_id', ${name("session ")(sql`i / 7`)}, 'first_token_ms', latency_ms / 4,
        'metadata', jsonb_build_object('tags',
          jsonb_build_array((${sql.array(tags.map((tag) => plan.nameOf(tag)))}::text[])[1 + floor(${tags.length}::integer * power(other, 2))::integer])))
      END, at
    FROM priced ORDER BY i`;
}

/** From the transactions alone, so that they cannot differ. */
async function sumUpAccounts(sql: Database, organizationId: string): Promise<void> {
  await sql`
    UPDATE accounts SET credit_nano = s.credit, posted_nano = s.posted, sequence = s.last
    FROM (
      SELECT coalesce(sum(amount_nano) FILTER (WHERE type <> 'usage'), 0) AS credit,
        coalesce(-sum(amount_nano) FILTER (WHERE type = 'usage'), 0) AS posted, max(sequence) AS last
      FROM transactions WHERE organization_id = ${organizationId}
    ) s WHERE id = ${`org:${organizationId}`}`;
  for (const period of ["day", "month"] as const) {
    await sql`
      INSERT INTO accounts (id, kind, organization_id, key_id, period_start, posted_nano, last_used_at)
      SELECT ${`${period}:`} || key_id || ':' || start, ${period}, ${organizationId}, key_id, start, -sum(amount_nano),
        max(created_at)
      FROM (
        SELECT key_id, amount_nano, created_at, date_trunc(${period}, created_at, 'UTC')::date AS start
        FROM transactions WHERE organization_id = ${organizationId} AND type = 'usage'
      ) charges GROUP BY key_id, start`;
  }
}
