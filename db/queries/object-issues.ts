import { utcDay, utcMonth } from "../../src/lib/utc-time.ts";
import type { Database } from "../client.ts";

/*
 * Failures of an organization outside of requests. Each query reads a bounded number of the latest rows of an index.
 */

/** An object or a budget that someone should look at. Undefined members do not apply to the kind. */
export type ObjectIssue =
  | {
      readonly kind: "batch";
      readonly id: string;
      readonly failed: number;
      /** 0 if the input was rejected. */
      readonly total: number;
    }
  | { readonly kind: "fine_tuning_job"; readonly id: string; readonly model: string }
  | {
      readonly kind: "vector_store";
      readonly id: string;
      readonly name: string | null;
      readonly failed: number;
    }
  | { readonly kind: "payment"; readonly amountNano: bigint; readonly message: string | null }
  | {
      readonly kind: "budget";
      /** The type of the budget's subject. */
      readonly subject: "key" | "user" | "tag" | "team" | "member";
      readonly name: string;
    };

const DAY_MS = 86_400_000;
const HOUR_MS = 3_600_000;
const MAX_ISSUES = 5;
/** Latest objects of one kind that are read. */
const MAX_READ = 200;
const MAX_FAILED_FILES = 1_000;
const MAX_FAILURES = 1_000;
const MAX_SUBJECTS = 100;

/** Returns the issues of the last day, and budgets that rejected requests in the last hour. At most 5 of each kind. */
export async function findObjectIssues(
  sql: Database,
  organizationId: string,
  nowMs: number,
): Promise<ObjectIssue[]> {
  const since = new Date(nowMs - DAY_MS);
  const [batches, jobs, stores, payments, budgets] = await Promise.all([
    sql<{ id: string; failed: number; total: number }[]>`
      SELECT id, failed, total FROM (
        SELECT * FROM batches WHERE organization_id = ${organizationId}
        ORDER BY id COLLATE "C" DESC LIMIT ${MAX_READ}
      ) b WHERE (failed > 0 OR status = 'failed') AND status NOT IN ('cancelling', 'cancelled')
        AND (ended_at IS NULL OR ended_at > ${since})
      ORDER BY id COLLATE "C" DESC LIMIT ${MAX_ISSUES}`,
    sql<{ id: string; base_model: string }[]>`
      SELECT id, base_model FROM (
        SELECT * FROM fine_tuning_jobs WHERE organization_id = ${organizationId}
        ORDER BY created_at DESC, id DESC LIMIT ${MAX_READ}
      ) j WHERE status = 'failed' AND finished_at > ${since}
      ORDER BY created_at DESC, id DESC LIMIT ${MAX_ISSUES}`,
    sql<{ id: string; name: string | null; failed: number }[]>`
      SELECT s.id, s.name, f.failed FROM (
        SELECT vector_store_id, count(*)::int AS failed FROM (
          SELECT * FROM vector_store_files WHERE organization_id = ${organizationId} AND status = 'failed'
          ORDER BY id COLLATE "C" DESC LIMIT ${MAX_FAILED_FILES}
        ) latest WHERE created_at > ${since} GROUP BY vector_store_id
      ) f JOIN vector_stores s ON s.id = f.vector_store_id
      ORDER BY f.failed DESC, s.id LIMIT ${MAX_ISSUES}`,
    sql<{ amount_nano: bigint; error_message: string | null }[]>`
      SELECT amount_nano, error_message FROM (
        SELECT *, bool_or(state = 'succeeded') OVER (ORDER BY created_at DESC) AS is_paid_since FROM (
          SELECT * FROM payment_intents WHERE organization_id = ${organizationId} AND created_at > ${since}
          ORDER BY created_at DESC LIMIT ${MAX_READ}
        ) latest
      ) p WHERE state = 'failed' AND NOT is_paid_since ORDER BY created_at DESC LIMIT ${MAX_ISSUES}`,
    findUsedUpBudgets(sql, organizationId, nowMs),
  ]);
  return [
    ...batches.map((row) => ({ kind: "batch" as const, ...row })),
    ...jobs.map((row) => ({ kind: "fine_tuning_job" as const, id: row.id, model: row.base_model })),
    ...stores.map((row) => ({ kind: "vector_store" as const, ...row })),
    ...payments.map((row) => ({
      ...{ kind: "payment" as const, amountNano: row.amount_nano, message: row.error_message },
    })),
    ...budgets.map((row) => ({ kind: "budget" as const, ...row })),
  ];
}

type BudgetIssue = Extract<ObjectIssue, { kind: "budget" }>;

/**
 * Returns budgets that have rejected requests and are spent to 95 %: holds keep the amount spent below a budget. The
 * rejected requests name their subjects, so that not all budgets are read.
 */
function findUsedUpBudgets(
  sql: Database,
  organizationId: string,
  nowMs: number,
): Promise<Pick<BudgetIssue, "subject" | "name">[]> {
  const day = utcDay(nowMs).start;
  const month = utcMonth(nowMs).start;
  return sql<Pick<BudgetIssue, "subject" | "name">[]>`
    WITH rejected AS MATERIALIZED (
      SELECT DISTINCT key_id, user_name, tags FROM (
        SELECT * FROM failed_requests WHERE organization_id = ${organizationId} AND NOT is_charged
        ORDER BY position DESC, created_at DESC, id DESC LIMIT ${MAX_FAILURES}
      ) latest WHERE error_code = 'budget_exhausted' AND created_at > ${new Date(nowMs - HOUR_MS)}
      LIMIT ${MAX_SUBJECTS}
    ), keys AS MATERIALIZED (
      SELECT k.* FROM api_keys k
      WHERE k.id IN (SELECT key_id FROM rejected) AND k.organization_id = ${organizationId}
    ), subjects AS (
      SELECT 'user' AS type, user_name AS value FROM rejected WHERE user_name IS NOT NULL
      UNION SELECT 'tag', tag FROM rejected CROSS JOIN LATERAL jsonb_array_elements_text(
        CASE jsonb_typeof(tags) WHEN 'array' THEN tags ELSE '[]' END) AS tag
      UNION SELECT 'team', team_id FROM keys WHERE team_id IS NOT NULL
      UNION SELECT 'member', owner_id FROM keys WHERE owner_id IS NOT NULL
    ), budgets AS (
      SELECT b.id, b.subject_type AS subject, b.daily_budget_nano AS daily, b.monthly_budget_nano AS monthly,
        coalesce(t.name, p.email, b.subject_value) AS name,
        'subject_day:' || b.id || ':' || ${day} AS day_id, 'subject_month:' || b.id || ':' || ${month} AS month_id
      FROM subjects s JOIN subject_budgets b ON b.organization_id = ${organizationId}
        AND b.subject_type = s.type AND b.subject_value = s.value
      LEFT JOIN teams t ON s.type = 'team' AND t.id = s.value
      LEFT JOIN members m ON s.type = 'member' AND m.id = s.value
      LEFT JOIN people p ON p.id = m.person_id
      UNION ALL
      SELECT id, 'key', daily_budget_nano, monthly_budget_nano, name, 'day:' || id || ':' || ${day},
        'month:' || id || ':' || ${month}
      FROM keys
    )
    SELECT b.subject, b.name FROM budgets b
    LEFT JOIN accounts d ON d.id = b.day_id LEFT JOIN accounts m ON m.id = b.month_id
    WHERE d.posted_nano >= b.daily - b.daily / 20 OR m.posted_nano >= b.monthly - b.monthly / 20
    ORDER BY b.subject, b.name LIMIT ${MAX_ISSUES}`;
}
