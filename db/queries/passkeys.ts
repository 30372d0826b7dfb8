import type { Database } from "../client.ts";
import { type RecordOf, type RowOf, recordReader } from "../rows.ts";
import { passkeys } from "../schema/people.ts";

export type Passkey = RecordOf<typeof passkeys>;
const passkeyOf = recordReader(passkeys);

/** Largest number of expired challenges that one new challenge removes. */
const REMOVED_TOGETHER = 1_000;

/**
 * Inserts a challenge, and removes expired ones.
 *
 * @param personId the person who adds a passkey. Null: the challenge is for a sign-in
 */
export async function insertPasskeyChallenge(
  sql: Database,
  challenge: { readonly challenge: string; readonly personId: string | null },
  { nowMs, expiresAtMs }: { readonly nowMs: number; readonly expiresAtMs: number },
): Promise<void> {
  await sql.begin(async (transaction) => {
    await transaction`INSERT INTO passkey_challenges (challenge, person_id, expires_at)
      VALUES (${challenge.challenge}, ${challenge.personId}, ${new Date(expiresAtMs)})`;
    await transaction`
      DELETE FROM passkey_challenges WHERE challenge IN (
        SELECT challenge FROM passkey_challenges WHERE expires_at <= ${new Date(nowMs)}
        ORDER BY expires_at LIMIT ${REMOVED_TOGETHER} FOR UPDATE SKIP LOCKED)`;
  });
}

/** Uses a challenge up. Returns false if there is none for this purpose, or if it has expired. */
export async function usePasskeyChallenge(
  sql: Database,
  challenge: string,
  personId: string | null,
  nowMs: number,
): Promise<boolean> {
  const used = await sql`
    DELETE FROM passkey_challenges
    WHERE challenge = ${challenge} AND person_id IS NOT DISTINCT FROM ${personId}
      AND expires_at > ${new Date(nowMs)}`;
  return used.count > 0;
}

export async function findPasskey(sql: Database, id: string): Promise<Passkey | undefined> {
  const [row] = await sql<RowOf<typeof passkeys>[]>`SELECT * FROM passkeys WHERE id = ${id}`;
  return row && passkeyOf(row);
}

/** Lists the passkeys of a person, oldest first. */
export async function listPasskeys(sql: Database, personId: string): Promise<Passkey[]> {
  const rows = await sql<RowOf<typeof passkeys>[]>`
    SELECT * FROM passkeys WHERE person_id = ${personId} ORDER BY created_at, id`;
  return rows.map(passkeyOf);
}

/**
 * Inserts a passkey. Returns false if the person has `most` passkeys. Fails with 23505 if a passkey with the id exists.
 */
export function insertPasskey(
  sql: Database,
  passkey: Omit<Passkey, "lastUsedAtMs">,
  most: number,
): Promise<boolean> {
  return sql.begin(async (transaction) => {
    // Locks the person, so that two insertions do not both count the passkeys before the other.
    await transaction`SELECT 1 FROM people WHERE id = ${passkey.personId} FOR NO KEY UPDATE`;
    const inserted = await transaction`
      INSERT INTO passkeys
        (id, person_id, name, public_key, counter, transports, is_backed_up, created_at)
      SELECT ${passkey.id}, ${passkey.personId}, ${passkey.name}, ${passkey.publicKey as Buffer}::bytea,
        ${passkey.counter}::bigint, ${transaction.array([...passkey.transports])}::text[],
        ${passkey.isBackedUp}::boolean, ${new Date(passkey.createdAtMs)}::timestamptz
      WHERE (SELECT count(*) FROM passkeys WHERE person_id = ${passkey.personId}) < ${most}::integer`;
    return inserted.count > 0;
  });
}

/** Deletes a passkey of a person. Returns false if the person has no such passkey. */
export async function deletePasskey(sql: Database, personId: string, id: string): Promise<boolean> {
  const deleted = await sql.begin(
    (transaction) => transaction`
      DELETE FROM passkeys WHERE id = ${id} AND person_id = ${personId}`,
  );
  return deleted.count > 0;
}

/**
 * Records the use of a passkey. Returns false if its counter has not grown, which shows a copy of the authenticator, or
 * if the passkey was deleted in the meantime.
 */
export async function notePasskeyUse(
  sql: Database,
  { id, counter, isBackedUp }: Pick<Passkey, "id" | "counter" | "isBackedUp">,
  nowMs: number,
): Promise<boolean> {
  const used = await sql`
    UPDATE passkeys SET counter = ${counter}::bigint, is_backed_up = ${isBackedUp}, last_used_at = ${new Date(nowMs)}
    WHERE id = ${id} AND (counter < ${counter}::bigint OR (counter = 0 AND ${counter}::bigint = 0))`;
  return used.count > 0;
}
