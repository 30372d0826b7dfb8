import type { ModelTerms } from "../../src/lib/catalogue-model.ts";
import type { Database, DatabaseTransaction } from "../client.ts";
import type { StatementEffect } from "../ledger/effects.ts";
import { orgAccountId } from "../ledger/rows.ts";
import { type RowOf, recordReader } from "../rows.ts";
import { providerBatches } from "../schema/batches.ts";

const storedBatch = recordReader(providerBatches);

type ProviderBatchRow = RowOf<typeof providerBatches> & {
  /** Milliseconds since the batch was ordered, by the clock of the database. */
  readonly age_ms: number | null;
};

export type ProviderBatchRecord = ReturnType<typeof batchOf>;
export type NewProviderBatch = Omit<
  ProviderBatchRecord,
  "state" | "requests" | "providerBatch" | "orderedAtMs" | "ageMs" | "isCancelled"
>;

function batchOf(row: ProviderBatchRow) {
  return { ...storedBatch(row), terms: termsOfText(row.terms), ageMs: row.age_ms };
}

export async function insertProviderBatch(
  sql: DatabaseTransaction,
  batch: NewProviderBatch,
): Promise<void> {
  await sql`INSERT INTO provider_batches
      (id, batch_id, provider_id, provider_key, model, provider_model, kind, terms, state, requests)
    VALUES (${batch.id}, ${batch.batchId}, ${batch.providerId}, ${batch.providerKey}, ${batch.model},
      ${batch.providerModel}, ${batch.kind}, ${textOfTerms(batch.terms)}, 'filling', 0)`;
}

/** Returns the provider batches of a batch, oldest first. */
export async function providerBatchesOf(
  sql: Database,
  batchId: string,
): Promise<ProviderBatchRecord[]> {
  const rows = await sql<ProviderBatchRow[]>`
    SELECT *, (extract(epoch FROM clock_timestamp() - ordered_at) * 1000)::float8 AS age_ms
    FROM provider_batches WHERE batch_id = ${batchId} ORDER BY id COLLATE "C"`;
  return rows.map(batchOf);
}

/** Returns the ids, at a provider, of batches that are known to be this gateway's. */
export async function knownProviderBatches(
  sql: Database,
  providerId: string,
): Promise<ReadonlySet<string>> {
  const rows = await sql<{ provider_batch: string }[]>`SELECT provider_batch FROM provider_batches
    WHERE provider_id = ${providerId} AND provider_batch IS NOT NULL`;
  return new Set(rows.map((row) => row.provider_batch));
}

/** Records that the batch may exist at the provider from now on. */
export async function orderProviderBatch(sql: DatabaseTransaction, id: string): Promise<void> {
  await sql`UPDATE provider_batches SET state = 'ordered', ordered_at = clock_timestamp(),
      requests = (SELECT count(*) FROM provider_batch_lines WHERE provider_batch = ${id})
    WHERE id = ${id}`;
}

export async function noteProviderBatch(
  sql: DatabaseTransaction,
  id: string,
  noted: Partial<Pick<ProviderBatchRecord, "state" | "providerBatch" | "isCancelled">>,
): Promise<void> {
  const { state = null, providerBatch = null, isCancelled = null } = noted;
  await sql`UPDATE provider_batches SET state = coalesce(${state}, state),
      provider_batch = coalesce(${providerBatch}, provider_batch),
      is_cancelled = coalesce(${isCancelled}::boolean, is_cancelled)
    WHERE id = ${id}`;
}

export async function removeProviderBatch(sql: DatabaseTransaction, id: string): Promise<void> {
  await sql`DELETE FROM provider_batches WHERE id = ${id}`;
}

/** A line that is at a provider. */
export interface SubmittedLine {
  readonly line: number;
  /** Id of its hold. */
  readonly requestId: string;
  readonly feeBasisPoints: number;
}

/** Returns an effect that writes lines together with their holds. */
export function insertLinesEffect(
  { id, batchId }: Pick<NewProviderBatch, "id" | "batchId">,
  lines: readonly SubmittedLine[],
  guard: (sql: DatabaseTransaction) => Promise<void>,
): StatementEffect {
  return {
    kind: "statement",
    name: "batch-lines-hand",
    tables: ["provider_batch_lines"],
    events: [],
    async run(sql) {
      await guard(sql);
      await sql`INSERT INTO provider_batch_lines
          (batch_id, line, provider_batch, request_id, fee_basis_points)
        SELECT ${batchId}, line, ${id}, request_id, fee
        FROM unnest(${sql.array(lines.map(({ line }) => line))}::int[],
          ${sql.array(lines.map(({ requestId }) => requestId))}::text[],
          ${sql.array(lines.map(({ feeBasisPoints }) => feeBasisPoints))}::int[])
          AS given (line, request_id, fee)`;
    },
  };
}

/**
 * Returns the lines of a batch that were submitted: those that are at providers, and those that no longer are.
 */
export async function submittedLines(
  sql: Database,
  batchId: string,
): Promise<{ readonly out: Set<number>; readonly back: Set<number> }> {
  const rows = await sql<{ line: number; is_out: boolean }[]>`
    SELECT line, request_id IS NOT NULL AS is_out FROM provider_batch_lines WHERE batch_id = ${batchId}`;
  const linesOf = (isOut: boolean) =>
    new Set(rows.filter((row) => row.is_out === isOut).map(({ line }) => line));
  return { out: linesOf(true), back: linesOf(false) };
}

/** Returns true if the organization has holds for lines at providers. */
export async function hasSubmittedLines(sql: Database, organizationId: string): Promise<boolean> {
  const [row] = await sql<{ has_some: boolean }[]>`
    SELECT EXISTS (SELECT FROM provider_batch_lines l JOIN batches b ON b.id = l.batch_id
      WHERE b.organization_id = ${organizationId} AND b.ended_at IS NULL
        AND l.request_id IS NOT NULL) AS has_some`;
  return row!.has_some;
}

/**
 * Returns how much more an organization's lines at providers may hold. Together they may hold 50 % of the amount that
 * nothing else holds, so that its calls have the rest while these wait. Null if its credit has no limit.
 */
export async function roomForLines(
  sql: Database,
  organizationId: string,
): Promise<{ readonly roomNano: bigint | null; readonly isEmpty: boolean }> {
  const [row] = await sql<{ room_nano: bigint | null; is_empty: boolean }[]>`
    WITH handed AS (SELECT coalesce(sum(h.hold_nano), 0)::bigint AS nano, count(*) AS lines
      FROM batches b JOIN provider_batch_lines l ON l.batch_id = b.id JOIN holds h ON h.id = l.request_id
      WHERE b.organization_id = ${organizationId} AND b.ended_at IS NULL)
    SELECT (a.credit_nano - a.posted_nano + a.credit_limit_nano - a.held_nano + handed.nano) / 2 - handed.nano
        AS room_nano, handed.lines = 0 AS is_empty
    FROM handed, accounts a WHERE a.id = ${orgAccountId(organizationId)}`;
  return { roomNano: row?.room_nano ?? null, isEmpty: row?.is_empty !== false };
}

/**
 * Returns all lines of a provider's batch, and those that are still there, by number, with their holds.
 */
export async function linesAtProvider(
  sql: Database,
  providerBatchId: string,
): Promise<{
  readonly given: ReadonlySet<number>;
  readonly out: Map<number, SubmittedLine & { readonly holdNano: bigint }>;
}> {
  const rows = await sql<
    {
      line: number;
      request_id: string | null;
      fee_basis_points: number;
      hold_nano: bigint | null;
    }[]
  >`SELECT l.line, l.request_id, l.fee_basis_points, h.hold_nano
    FROM provider_batch_lines l LEFT JOIN holds h ON h.id = l.request_id
    WHERE l.provider_batch = ${providerBatchId} ORDER BY l.line`;
  const out = new Map<number, SubmittedLine & { readonly holdNano: bigint }>();
  for (const { line, request_id: requestId, fee_basis_points, hold_nano } of rows) {
    if (requestId === null) continue;
    const holdNano = hold_nano ?? 0n;
    out.set(line, { line, requestId, feeBasisPoints: fee_basis_points, holdNano });
  }
  return { given: new Set(rows.map(({ line }) => line)), out };
}

/**
 * Records that lines are no longer at a provider, and are not submitted again. It runs with the ends of their holds.
 */
export async function endSubmittedLines(
  sql: DatabaseTransaction,
  batchId: string,
  requestIds: ReadonlySet<string>,
): Promise<void> {
  await sql`UPDATE provider_batch_lines SET request_id = NULL
    WHERE batch_id = ${batchId} AND request_id = ANY (${sql.array([...requestIds])}::text[])`;
}

/** Deletes lines, which then count as never submitted. It runs with the ends of their holds. */
export async function resubmitLines(
  sql: DatabaseTransaction,
  batchId: string,
  requestIds: ReadonlySet<string>,
): Promise<void> {
  await sql`DELETE FROM provider_batch_lines
    WHERE batch_id = ${batchId} AND request_id = ANY (${sql.array([...requestIds])}::text[])`;
}

/** Deletes the lines of a batch that has ended. */
export async function deleteSubmittedLines(
  sql: DatabaseTransaction,
  batchId: string,
): Promise<void> {
  await sql`DELETE FROM provider_batch_lines WHERE batch_id = ${batchId} AND request_id IS NULL`;
}

const BIGINT = /^-?\d+n$/;

/** Returns JSON. Prices are integers of any size. */
function textOfTerms(terms: ModelTerms): string {
  const { contextLength, maxOutputTokens, prices, capabilities } = terms;
  return JSON.stringify({ contextLength, maxOutputTokens, prices, capabilities }, (_, value) =>
    typeof value === "bigint" ? `${value}n` : value,
  );
}

function termsOfText(text: string): ModelTerms {
  return JSON.parse(text, (_, value) =>
    typeof value === "string" && BIGINT.test(value) ? BigInt(value.slice(0, -1)) : value,
  ) as ModelTerms;
}
