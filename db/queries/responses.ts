import type { Database, DatabaseTransaction, SqlFragment } from "../client.ts";
import type { StatementEffect, StoredResponse } from "../ledger/effects.ts";
import type { RecordOf } from "../rows.ts";
import type { responses } from "../schema/responses.ts";

/** How long a response can be read and continued (spec 3.5). */
export const LIFETIME = "30 days";
/**
 * Longer than any call. Rows without a written charge stay for this time, and so do rows that are no longer readable: a
 * call that began before may still continue from them.
 */
const LONGEST_CALL = "1 day";
/** How long the contents of a background response stay, which can be read before its charge. */
export const CONTENTS_LIFETIME = "31 days";

/**
 * Kinds of contents of a response, in the order in which they sort. `head` is the response without its output; `input`
 * and `output` are items. A background response also has `begun`, its state at the start; `ended`, its state at the end
 * if it was not answered; and `events`, in parts of their own (`background-responses.ts`).
 */
export type ContentKind = "begun" | "ended" | "events" | "head" | "input" | "output";

/** The data of a stored response that is needed to continue it. */
export type ChainLink = Pick<RecordOf<typeof responses>, "id" | "chainId" | "chainBytes">;
export type NewResponse = Pick<
  RecordOf<typeof responses>,
  "id" | "organizationId" | "keyId" | "previousId" | "chainId"
>;

/** Sealed. */
export interface ContentPiece {
  readonly kind: ContentKind;
  /** Number within its kind, from 0. */
  readonly number: number;
  readonly sealed: Uint8Array;
}

/** Enough digits for the pieces of the longest body, so that texts sort as numbers do. */
const PIECE_DIGITS = 5;

function partOf({ kind, number }: ContentPiece): string {
  return `${kind}.${String(number).padStart(PIECE_DIGITS, "0")}`;
}

/**
 * Writes pieces of a response before its charge, sealed with the key of that id: no reader sees them until then.
 * Returns the id of the current sealing key. If it is another one, nothing was written.
 *
 * @param waitsForDisk false only if all pieces of a response are written together: the commit of its charge, which
 * comes later in the log, brings both to the disk (PostgreSQL documentation, Asynchronous Commit). A server that
 * crashes in between loses all of them, and `keepResponses` detects that.
 */
export async function writeUncharged(
  sql: Database,
  { id, organizationId, keyId: callerKeyId, previousId, chainId }: NewResponse,
  pieces: readonly ContentPiece[],
  keyId: string,
  { waitsForDisk }: { readonly waitsForDisk: boolean },
): Promise<string> {
  const rows = pieces.map((piece) => [partOf(piece), piece.sealed as Buffer] as const);
  const [row] = await sql<{ sealing_id: string | null }[]>`
    WITH sealing AS MATERIALIZED (SELECT key_id FROM master_key FOR SHARE),
    response AS (
      INSERT INTO responses (id, organization_id, key_id, previous_id, chain_id, remove_after)
      SELECT ${id}, ${organizationId}, ${callerKeyId}, ${previousId}, ${chainId},
        clock_timestamp() + ${LONGEST_CALL}::interval
      FROM sealing WHERE key_id = ${keyId}
      ON CONFLICT (id) DO NOTHING),
    written AS (
      INSERT INTO response_contents (response_id, part, sealed)
      SELECT ${id}, piece.part, piece.sealed::bytea
      FROM (VALUES ${sql(rows as never)}) AS piece (part, sealed)
      WHERE EXISTS (SELECT 1 FROM sealing WHERE key_id = ${keyId})
      ON CONFLICT (response_id, part) DO UPDATE SET sealed = EXCLUDED.sealed)
    SELECT (SELECT key_id FROM sealing) AS sealing_id,
      set_config('synchronous_commit', ${waitsForDisk ? "on" : "off"}, true)`;
  if (!row?.sealing_id) throw new Error("the database has not been used with a master key yet");
  return row.sealing_id;
}

/**
 * Returns the call of function keep_responses: it makes responses visible whose contents are all written. Raises
 * RESPONSE_LOST, and so ends the transaction of their charges, if one of them does not exist.
 */
export function keepResponses(
  sql: Database | DatabaseTransaction,
  responses: readonly StoredResponse[],
): SqlFragment {
  const rows = responses.map(({ id, storedBytes, chainBytes, conversationId }) => {
    return { id, own_bytes: storedBytes, chain_bytes: chainBytes, conversation_id: conversationId };
  });
  return sql`keep_responses(${JSON.stringify(rows)}::text::jsonb,
    ${LIFETIME}::interval + ${LONGEST_CALL}::interval)`;
}

/**
 * Returns an effect that makes a response, whose contents are all written, visible with its charge.
 */
export function keepResponseEffect(response: StoredResponse): StatementEffect {
  return {
    kind: "statement",
    name: "response-keep",
    tables: ["responses"],
    events: [],
    keeps: response,
    async run(sql) {
      await sql`SELECT ${keepResponses(sql, [response])}`;
    },
  };
}

/** Responses that a query finds: only answered responses, or also responses that run in the background. */
export type Answered = "answered" | "any";

/** Returns the condition on a row of `responses`. */
function isReadable(sql: Database, answered: Answered): SqlFragment {
  return answered === "answered"
    ? sql`is_kept`
    : sql`(is_kept OR EXISTS (SELECT 1 FROM background_responses b WHERE b.id = responses.id))`;
}

/** Returns undefined if the organization has no such response. */
export async function findResponse(
  sql: Database,
  organizationId: string,
  id: string,
  answered: Answered = "answered",
): Promise<ChainLink | undefined> {
  const [row] = await sql<{ chain_id: string; chain_bytes: string }[]>`
    SELECT chain_id, chain_bytes::text FROM responses
    WHERE id = ${id} AND organization_id = ${organizationId} AND ${isReadable(sql, answered)}
      AND created_at > clock_timestamp() - ${LIFETIME}::interval`;
  return row && { id, chainId: row.chain_id, chainBytes: Number(row.chain_bytes) };
}

/**
 * Returns the sealed input and output of a response and of all before it, oldest first. If one of them was deleted,
 * they begin after it. They do not expire while a later response lives.
 */
export async function readChain(
  sql: Database,
  organizationId: string,
  id: string,
  answered: Answered = "answered",
): Promise<{ readonly pieces: ChainPiece[]; readonly isWhole: boolean }> {
  // LIMIT and OFFSET make the planner read one index entry for each row, whatever the statistics are.
  const rows: (ChainPiece & { previous_id: string | null })[] = [];
  const reading = sql<typeof rows>`
    WITH RECURSIVE chain AS (
      SELECT id, previous_id, 0 AS depth FROM responses
      WHERE id = ${id} AND organization_id = ${organizationId} AND ${isReadable(sql, answered)}
      UNION ALL
      SELECT before.id, before.previous_id, chain.depth + 1
      FROM chain CROSS JOIN LATERAL (
        SELECT id, previous_id FROM responses WHERE id = chain.previous_id
          AND organization_id = ${organizationId} AND is_kept LIMIT 1) AS before)
    SELECT chain.id, chain.previous_id, split_part(c.part, '.', 1) AS kind, c.sealed
    FROM chain CROSS JOIN LATERAL (
      SELECT part, sealed FROM response_contents
      WHERE response_id = chain.id AND part >= 'input' OFFSET 0) AS c
    ORDER BY chain.depth DESC, c.part`.cursor(ROWS_AT_ONCE);
  for await (const some of reading) rows.push(...some);
  return { pieces: rows, isWhole: rows[0]?.previous_id === null };
}

export interface ChainPiece {
  /** Id of its response. */
  readonly id: string;
  readonly kind: ContentKind;
  readonly sealed: Uint8Array;
}

/** Reading more rows in one step would block the event loop: 4,096 take about 5 ms. */
const ROWS_AT_ONCE = 4_096;

/**
 * Returns sealed contents of one kind, or of several, of the responses that the organization may read. Omits responses
 * without a charge, unless all kinds are kinds of a running response.
 */
export async function readContents(
  sql: Database,
  organizationId: string,
  ids: readonly string[],
  kinds: readonly ContentKind[],
): Promise<ChainPiece[]> {
  const isOfRunning = kinds.every((kind) => OF_RUNNING.has(kind));
  return sql<ChainPiece[]>`
    SELECT r.id, split_part(c.part, '.', 1) AS kind, c.sealed
    FROM responses r JOIN response_contents c ON c.response_id = r.id
    WHERE r.id = ANY (${sql.array([...ids])}::text[]) AND r.organization_id = ${organizationId}
      AND (r.is_kept OR ${isOfRunning}) AND r.created_at > clock_timestamp() - ${LIFETIME}::interval
      AND split_part(c.part, '.', 1) = ANY (${sql.array([...kinds])}::text[])
    ORDER BY r.id, c.part`;
}

const OF_RUNNING: ReadonlySet<ContentKind> = new Set(["begun", "ended"]);

/** Returns the total size of input and output of these responses. */
export async function sizeOfResponses(
  sql: Database,
  organizationId: string,
  ids: readonly string[],
): Promise<number> {
  const [row] = await sql<{ bytes: string }[]>`
    SELECT coalesce(sum(own_bytes), 0)::text AS bytes FROM responses
    WHERE id = ANY (${sql.array([...ids])}::text[]) AND organization_id = ${organizationId} AND is_kept`;
  return Number(row!.bytes);
}

/**
 * Deletes a response and its contents. Returns false if the organization has no such response, or if it still runs. The
 * contents of a turn of a conversation stay, for the conversation only.
 */
export function deleteResponse(
  sql: Database,
  organizationId: string,
  id: string,
): Promise<boolean> {
  return sql.begin(async (transaction) => {
    const hidden = await transaction`UPDATE responses SET created_at = '-infinity'
      WHERE id = ${id} AND organization_id = ${organizationId} AND is_kept
        AND created_at > clock_timestamp() - ${LIFETIME}::interval
        AND EXISTS (SELECT 1 FROM conversations c WHERE c.id = responses.chain_id)
        AND remove_after = 'infinity'`;
    if (hidden.count > 0) return true;
    const deleted = await transaction`DELETE FROM responses
      WHERE id = ${id} AND organization_id = ${organizationId}
        AND created_at > clock_timestamp() - ${LIFETIME}::interval
        AND CASE WHEN EXISTS (SELECT 1 FROM background_responses b WHERE b.id = responses.id)
          THEN NOT EXISTS (SELECT 1 FROM background_responses b WHERE b.id = responses.id
            AND b.state IN ('queued', 'in_progress'))
          ELSE is_kept END`;
    return deleted.count > 0;
  });
}

/** Each may have contents of tens of megabytes. */
const REMOVAL_BATCH = 100;

/**
 * Checks a bounded number of responses that are due, and removes them. A response that a later response of its chain
 * still needs is due again together with the later response. Returns true if there may be more.
 */
export async function removeOldResponses(sql: Database): Promise<boolean> {
  const [row] = await sql<{ looked: number }[]>`
    WITH due AS MATERIALIZED (
      SELECT id, is_kept, chain_id FROM responses WHERE remove_after < clock_timestamp()
      ORDER BY remove_after LIMIT ${REMOVAL_BATCH} FOR UPDATE SKIP LOCKED),
    judged AS MATERIALIZED (
      SELECT due.id, due.is_kept, (
        SELECT max(r.created_at) FROM responses r WHERE r.chain_id = due.chain_id AND r.is_kept
      ) + ${LIFETIME}::interval + ${LONGEST_CALL}::interval AS needed_until
      FROM due),
    removed AS (
      DELETE FROM responses WHERE id IN (
        SELECT id FROM judged WHERE NOT is_kept OR needed_until < clock_timestamp())),
    put_off AS (
      UPDATE responses SET remove_after = judged.needed_until FROM judged
      WHERE responses.id = judged.id AND judged.is_kept
        AND judged.needed_until >= clock_timestamp())
    SELECT count(*)::int AS looked FROM due`;
  return row!.looked === REMOVAL_BATCH;
}
