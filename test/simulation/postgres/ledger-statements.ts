import type { BatchRows } from "./batch-rows.ts";
import { emitBudgetEvents } from "./budget-events.ts";
import { isAlive } from "./fence.ts";
import { ledgerExchange } from "./ledger-exchange.ts";
import { emptyAccount, isPosted } from "./ledger-parts.ts";
import { ledgerSettle } from "./ledger-settle.ts";
import { rowsOf, written } from "./outcome.ts";
import { postCredit } from "./post-credit.ts";
import { refundCharge, refundSubjects } from "./refund-charge.ts";
import type { Listed } from "./statement-text.ts";
import type { ModelledStatement } from "./statements.ts";
import type { AttemptRow } from "./tables.ts";

/** Statements of db/ledger, and those that effects carry into its transactions. */
export const ledgerStatements: readonly ModelledStatement[] = [
  {
    name: "ledger_settle_batch",
    begins: "SELECT ledger_settle_batch(",
    isLedgerBatch: true,
    *run(context, transaction, [json]) {
      const batch = JSON.parse(json) as BatchRows;
      return rowsOf([{ totals: yield* ledgerSettle(context, transaction, batch) }]);
    },
  },
  {
    name: "ledger_exchange_batch",
    begins: "SELECT ledger_exchange_batch(",
    isLedgerBatch: true,
    *run(context, transaction, [json]) {
      const batch = JSON.parse(json) as BatchRows;
      return rowsOf([{ verdicts: yield* ledgerExchange(context, transaction, batch) }]);
    },
  },
  ...(["share", "key share"] as const).map(
    (mode): ModelledStatement => ({
      name: "fence",
      begins: `SELECT 1 FROM instances WHERE id = ? AND epoch = ?::bigint AND alive FOR ${mode.toUpperCase()}`,
      *run(context, transaction, [instanceId, epoch]) {
        const writer = { instanceId, epoch: BigInt(epoch) };
        return rowsOf((yield* isAlive(context, transaction, writer, mode)) ? [{}] : []);
      },
    }),
  ),
  {
    name: "commit mark",
    begins: "INSERT INTO commit_marks",
    *run({ tables, guards }, transaction, [id]) {
      const isFirst = yield* tables.commitMarks.insertUnlessThere(transaction, id, { id });
      return written(isFirst || !guards.commitMarks ? 1 : 0);
    },
  },
  {
    name: "look for a commit mark",
    begins: "SELECT 1 FROM commit_marks WHERE id =",
    look({ tables }, transaction, [id]) {
      return rowsOf(tables.commitMarks.read(transaction, id) === undefined ? [] : [{}]);
    },
  },
  {
    name: "which are posted",
    begins: "SELECT request_id FROM transactions WHERE request_id = ANY (",
    look(context, transaction, [listed]) {
      const ids = (listed as Listed).of as readonly string[];
      const posted = ids.filter((id) => isPosted(context, transaction, id));
      return rowsOf(posted.map((request_id) => ({ request_id })));
    },
  },
  {
    name: "which have attempts",
    begins:
      "SELECT request_id, coalesce(budget_charge_nano, charge_nano) AS budget_nano FROM attempts",
    look({ tables }, transaction, [listed]) {
      const ids = (listed as Listed).of as readonly string[];
      const rows = tables.attempts.readAll(transaction, ids);
      return rowsOf(
        rows.map((row) => ({ ...row, budget_nano: row.budget_charge_nano ?? row.charge_nano })),
      );
    },
  },
  {
    name: "which hold",
    begins:
      "SELECT id, hold_nano, coalesce(budget_nano, hold_nano) AS budget_nano FROM holds WHERE",
    look({ tables }, transaction, [listed]) {
      const ids = (listed as Listed).of as readonly string[];
      const rows = tables.holds.readAll(transaction, ids);
      return rowsOf(rows.map((row) => ({ ...row, budget_nano: row.budget_nano ?? row.hold_nano })));
    },
  },
  {
    name: "totals of accounts",
    begins: "SELECT id, credit_nano, posted_nano, sequence FROM accounts WHERE id = ANY (",
    look: ({ tables }, transaction, [listed]) =>
      rowsOf(tables.accounts.readAll(transaction, (listed as Listed).of as readonly string[])),
  },
  {
    name: "ledger_post_credit",
    begins: "SELECT id, balance_after_nano, created_at FROM ledger_post_credit(",
    *run(context, transaction, [id, organizationId, type, amount, description]) {
      const posted = yield* postCredit(context, transaction, {
        id,
        organizationId,
        type,
        amountNano: BigInt(amount),
        description,
      });
      return rowsOf([posted ?? { id: null, balance_after_nano: null, created_at: null }]);
    },
  },
  {
    name: "ledger_refund",
    begins: "SELECT ledger_refund(",
    *run(context, transaction, [transactionId, requestId, dayAccount, monthAccount, description]) {
      const refund = { transactionId, requestId, dayAccount, monthAccount, description };
      return rowsOf([{ refunded: yield* refundCharge(context, transaction, refund) }]);
    },
  },
  {
    name: "ledger_refund_subjects",
    begins: "SELECT ledger_refund_subjects(",
    *run(context, transaction, [requestId, accounts]) {
      yield* refundSubjects(context, transaction, requestId, JSON.parse(accounts) as string[]);
      return rowsOf([]);
    },
  },
  {
    name: "new period",
    begins:
      "INSERT INTO accounts (id, kind, organization_id, key_id, budget_id, period_start) VALUES",
    *run({ tables }, transaction, [id, kind, organization_id, key_id, budget_id, period_start]) {
      const account = emptyAccount({ id, kind, organization_id, key_id, budget_id, period_start });
      return written((yield* tables.accounts.insertUnlessThere(transaction, id, account)) ? 1 : 0);
    },
  },
  {
    name: "lock accounts",
    begins: "SELECT 1 FROM accounts WHERE id IN ? ORDER BY id FOR UPDATE",
    *run({ tables }, transaction, [listed]) {
      const ids = (listed as Listed).of as readonly string[];
      for (const id of [...ids].sort()) yield* tables.accounts.lock(transaction, id, "update");
      return rowsOf([]);
    },
  },
  ...[false, true].map(
    (isExhausted): ModelledStatement => ({
      name: "emit_budget_events",
      begins: `SELECT emit_budget_events(?::text[], ${isExhausted})`,
      *run(context, transaction, [listed]) {
        const ids = (listed as Listed).of as readonly string[];
        yield* emitBudgetEvents(context, transaction, ids, isExhausted);
        return rowsOf([]);
      },
    }),
  ),
  {
    name: "attempts of the dead",
    begins:
      "SELECT a.*, ((a.hold_nano = 0 AND coalesce(a.budget_hold_nano, 0) = 0) OR h.id IS NOT NULL",
    look({ tables }, transaction, [after, limit]) {
      const isHeld = (row: AttemptRow): boolean => {
        const instance = tables.instances.read(transaction, row.instance_id);
        const isSingleNode = instance?.epoch === row.epoch && instance.is_alone;
        const hold = tables.holds.read(transaction, row.request_id);
        const isFree = row.hold_nano === 0n && (row.budget_hold_nano ?? 0n) === 0n;
        return isFree || hold !== undefined || isSingleNode;
      };
      const rows = [...tables.attempts.all(transaction)]
        .filter((row) => {
          const instance = tables.instances.read(transaction, row.instance_id);
          const isOrphan = instance?.epoch !== row.epoch || !instance.alive;
          return isOrphan && row.request_id > after;
        })
        .sort((one, other) => (one.request_id < other.request_id ? -1 : 1));
      return rowsOf(rows.slice(0, limit).map((row) => ({ ...row, is_held: isHeld(row) })));
    },
  },
  {
    name: "holds of the dead",
    begins:
      "SELECT h.id, h.org_account, h.day_account, h.month_account, h.subject_accounts FROM holds h",
    look({ tables }, transaction, [after, limit]) {
      const rows = [...tables.holds.all(transaction)]
        .filter((row) => {
          if (row.instance_id === null || row.id <= after) return false;
          const instance = tables.instances.read(transaction, row.instance_id);
          const isOrphan = instance?.epoch !== row.epoch || !instance.alive;
          return isOrphan && tables.attempts.read(transaction, row.id) === undefined;
        })
        .sort((one, other) => (one.id < other.id ? -1 : 1));
      return rowsOf(rows.slice(0, limit));
    },
  },
  {
    name: "end earlier session",
    begins: "SELECT pg_terminate_backend(pid) FROM pg_stat_activity",
    look(_context, _transaction, [name], session) {
      return rowsOf(session.endOthersNamed(name).map(() => ({})));
    },
  },
];
