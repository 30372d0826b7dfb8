import type { Author } from "../../src/lib/author.ts";
import { type Clock, sleep } from "../../src/lib/clock.ts";
import { newId } from "../../src/lib/ids.ts";
import { setAuthor } from "../authored.ts";
import { type Database, type DatabaseTransaction, isOutcomeUnknown, sqlState } from "../client.ts";
import { TRANSIENT_STATES } from "../error-states.ts";
import { isCommitMarkLeft, leaveCommitMark } from "../queries/commit-marks.ts";
import type { StatementEffect } from "./effects.ts";
import type { CommitBatch, CommittedBatch } from "./exchange-batch.ts";
import type { Checkpoint, HoldRelease, Settlement } from "./rows.ts";
import { FENCED, type InstanceIdentity } from "./settle-batch.ts";
import { untilAnswered } from "./written-before.ts";

interface StatementUnit {
  readonly checkpoints: readonly Checkpoint[];
  readonly settlements: readonly Settlement[];
  readonly releases: readonly HoldRelease[];
  readonly statements: readonly StatementEffect[];
}

interface StatementWriter {
  readonly sql: Database;
  readonly instance: InstanceIdentity;
  readonly commitBatch: CommitBatch;
  readonly clock: Clock;
  /** Resolves, after a moment, when a try of unknown outcome has certainly ended. */
  endEarlierTry(): Promise<void>;
}

const RETRY_DELAY_MS = 50;
const NOTHING_COMMITTED: CommittedBatch = {
  accountIds: [],
  totals: new Map(),
  verdicts: new Map(),
};

/** Thrown within a transaction to end it with the fence's own SQLSTATE. */
class FencedError extends Error {
  readonly code = FENCED;
}

/** Ends a transaction whose earlier try was committed after all. */
class CommittedBeforeError extends Error {}

/**
 * Writes units with administrative statements in one fenced transaction. If the connection breaks during the commit, it
 * tries again, and the commit mark shows the outcome of the earlier try. Throws only if nothing was written.
 */
export async function commitStatements(
  writer: StatementWriter,
  units: readonly StatementUnit[],
): Promise<CommittedBatch> {
  const { sql, instance } = writer;
  const mark = newId("cmt");
  let committed = NOTHING_COMMITTED;
  let isUnknown = false;
  for (;;) {
    try {
      await sql.begin(async (transaction) => {
        const [, isFirst] = await Promise.all([
          assertAlive(transaction, instance),
          leaveCommitMark(transaction, mark),
        ]);
        if (!isFirst) throw new CommittedBeforeError();
        committed = await writeLedger(transaction, writer, units);
        await runStatements(transaction, units);
      });
      return committed;
    } catch (error) {
      if (error instanceof CommittedBeforeError) return committed;
      if (isOutcomeUnknown(error)) {
        isUnknown = true;
        await writer.endEarlierTry();
      } else if (TRANSIENT_STATES.has(sqlState(error) ?? "")) {
        await sleep(writer.clock, RETRY_DELAY_MS);
      } else {
        // That this try wrote nothing says nothing about the earlier one, which has ended.
        const isLeft = () => isCommitMarkLeft(sql, mark);
        if (isUnknown && (await untilAnswered(writer.clock, isLeft))) return committed;
        throw error;
      }
    }
  }
}

/** Runs each statement as an act of its own author. */
async function runStatements(
  sql: DatabaseTransaction,
  units: readonly StatementUnit[],
): Promise<void> {
  let author: Author | undefined;
  for (const statement of units.flatMap(({ statements }) => statements)) {
    if (statement.author !== author) {
      author = statement.author;
      await setAuthor(sql, author);
    }
    await statement.run(sql);
  }
}

async function assertAlive(sql: DatabaseTransaction, instance: InstanceIdentity): Promise<void> {
  const [row] = await sql`SELECT 1 FROM instances
    WHERE id = ${instance.id} AND epoch = ${instance.epoch.toString()}::bigint AND alive FOR KEY SHARE`;
  if (!row) throw new FencedError("this instance was declared dead");
}

async function writeLedger(
  sql: DatabaseTransaction,
  { instance, commitBatch }: StatementWriter,
  units: readonly StatementUnit[],
): Promise<CommittedBatch> {
  const checkpoints = units.flatMap((unit) => unit.checkpoints);
  const settlements = units.flatMap((unit) => unit.settlements);
  const releases = units.flatMap((unit) => unit.releases);
  if (checkpoints.length + settlements.length + releases.length === 0) return NOTHING_COMMITTED;
  return commitBatch(sql, instance, {
    checkpoints,
    settlements,
    releases,
    holds: [],
    knownAccounts: new Set(),
    recheck: true,
  });
}
