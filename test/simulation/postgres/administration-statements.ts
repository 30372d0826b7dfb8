import { rowsOf, written } from "./outcome.ts";
import { noteChange } from "./post-credit.ts";
import type { Listed } from "./statement-text.ts";
import type { ModelledStatement } from "./statements.ts";
import type { ApiKeyRow, OutboxRow } from "./tables.ts";

/** What actors load, and what administration writes: db/queries. */
export const administrationStatements: readonly ModelledStatement[] = [
  {
    name: "load key",
    begins:
      "SELECT k.*, a.id AS account_id, a.posted_nano, a.held_nano, a.sequence, to_jsonb(t) AS team",
    look({ tables }, transaction, [listed, id]) {
      const found = tables.apiKeys.read(transaction, id);
      if (found === undefined || found.deleted_at !== null) return rowsOf([]);
      // The model has no teams and no owners.
      const key = { ...found, team: null, is_owner_active: true, owner_budgets: null };
      const rows = ((listed as Listed).of as readonly string[]).flatMap((accountId) => {
        const account = tables.accounts.read(transaction, accountId);
        if (account === undefined) return [];
        const { posted_nano, held_nano, sequence } = account;
        return [{ ...key, account_id: accountId, posted_nano, held_nano, sequence }];
      });
      const bare = { ...key, account_id: null, posted_nano: null, held_nano: null, sequence: null };
      return rowsOf(rows.length > 0 ? rows : [bare]);
    },
  },
  {
    name: "load subject budget",
    begins: "SELECT b.*, a.id AS account_id, a.posted_nano, a.held_nano, a.sequence FROM (VALUES",
    look({ tables }, transaction, [id, listed]) {
      const budget = tables.subjectBudgets.read(transaction, id) ?? { id: null };
      const accounts = (listed as Listed).of as readonly string[];
      const rows = tables.accounts.readAll(transaction, accounts).map((account) => {
        const { posted_nano, held_nano, sequence } = account;
        return { ...budget, account_id: account.id, posted_nano, held_nano, sequence };
      });
      const none = { posted_nano: null, held_nano: null, sequence: null };
      return rowsOf(rows.length > 0 ? rows : [{ ...budget, account_id: null, ...none }]);
    },
  },
  {
    name: "change subject budget",
    isRefusable: true,
    begins: "UPDATE subject_budgets SET daily_budget_nano = CASE WHEN",
    *run({ tables }, transaction, [isDaily, daily, isMonthly, monthly, id]) {
      const nano = (text: string | null) => (text === null ? null : BigInt(text));
      const row = yield* tables.subjectBudgets.update(transaction, id, (before) => ({
        ...before,
        daily_budget_nano: isDaily ? nano(daily) : before.daily_budget_nano,
        monthly_budget_nano: isMonthly ? nano(monthly) : before.monthly_budget_nano,
      }));
      return written(row === undefined ? 0 : 1);
    },
  },
  {
    name: "subject budget",
    begins: "SELECT b.*, d.posted_nano AS today_nano, m.posted_nano AS month_nano FROM subject_",
    look({ tables }, transaction, [day, month, id]) {
      const budget = tables.subjectBudgets.read(transaction, id);
      if (budget === undefined) return rowsOf([]);
      const spent = (account: string) =>
        tables.accounts.read(transaction, account)?.posted_nano ?? null;
      return rowsOf([{ ...budget, today_nano: spent(day), month_nano: spent(month) }]);
    },
  },
  {
    name: "load organization",
    begins: "SELECT o.id, o.name, o.plan, a.credit_nano, a.credit_limit_nano,",
    look({ tables }, transaction, [id]) {
      const organization = tables.organizations.read(transaction, id);
      const account = tables.accounts.read(transaction, `org:${id as string}`);
      if (organization === undefined || account === undefined) return rowsOf([]);
      const { credit_nano, credit_limit_nano, posted_nano, sequence, held_nano } = account;
      const totals = { credit_nano, credit_limit_nano, posted_nano, sequence, held_nano };
      return rowsOf([{ ...organization, fee_basis_points: null, ...totals }]);
    },
  },
  {
    name: "update key",
    isRefusable: true,
    begins: "UPDATE api_keys SET ?, version = version + 1 WHERE id = ? AND deleted_at IS NULL",
    *run({ tables }, transaction, [columns, id]) {
      const changed = (columns as Listed).of as Partial<ApiKeyRow>;
      const row = yield* tables.apiKeys.update(transaction, id, (before) =>
        before.deleted_at === null ? { ...before, ...changed } : undefined,
      );
      return written(row === undefined ? 0 : 1);
    },
  },
  {
    name: "delete key",
    begins: "UPDATE api_keys SET deleted_at = clock_timestamp(), is_active = false,",
    *run({ tables, nowMs }, transaction, [id]) {
      const row = yield* tables.apiKeys.update(transaction, id, (before) =>
        before.deleted_at === null
          ? { ...before, deleted_at: new Date(nowMs()), is_active: false }
          : undefined,
      );
      return written(row === undefined ? 0 : 1);
    },
  },
  {
    name: "outbox events",
    begins: "INSERT INTO outbox (event_id, organization_id, type, data) SELECT event_id, organizat",
    *run(context, transaction, [json]) {
      const { outbox, outboxIds } = context.tables;
      for (const event of JSON.parse(json) as OutboxRow[]) {
        const { event_id } = event;
        if (!(yield* outboxIds.insertUnlessThere(transaction, event_id, { event_id }))) continue;
        const order = String(context.nextId()).padStart(12, "0");
        yield* outbox.insert(transaction, order, event);
      }
      return written(1);
    },
  },
  {
    name: "note change",
    begins: "INSERT INTO changes (kind, object_id) VALUES",
    *run(context, transaction, [kind, objectId]) {
      yield* noteChange(context, transaction, kind, objectId);
      return written(1);
    },
  },
  {
    name: "notify",
    begins: "SELECT pg_notify(",
    look(_context, transaction, [channel, payload]) {
      transaction.notifications.push(`${channel as string} ${payload as string}`);
      return rowsOf([]);
    },
  },
  {
    name: "insert order",
    begins:
      "INSERT INTO credit_commands (id, organization_id, kind, amount_nano, credit_limit_nano,",
    *run({ tables }, transaction, [id, organization_id, kind, amount, limit, description]) {
      yield* tables.creditCommands.insert(transaction, id, {
        id,
        organization_id,
        kind,
        amount_nano: BigInt(amount),
        credit_limit_nano: limit === null ? null : BigInt(limit),
        description,
        done_at: null,
        transaction_id: null,
        refused_code: null,
      });
      return written(1);
    },
  },
  {
    name: "pending orders",
    begins:
      "SELECT id, organization_id, kind, amount_nano, credit_limit_nano, description FROM credit",
    look({ tables }, transaction) {
      const pending = [...tables.creditCommands.all(transaction)].filter(
        ({ done_at }) => done_at === null,
      );
      return rowsOf(pending.slice(0, 100));
    },
  },
  {
    name: "claim order",
    begins: "UPDATE credit_commands SET done_at = clock_timestamp(), transaction_id = ?",
    *run({ tables, nowMs }, transaction, [transaction_id, id]) {
      const row = yield* tables.creditCommands.update(transaction, id, (before) =>
        before.done_at === null
          ? { ...before, done_at: new Date(nowMs()), transaction_id }
          : undefined,
      );
      return written(row === undefined ? 0 : 1);
    },
  },
  {
    name: "set credit limit",
    begins: "UPDATE accounts SET credit_limit_nano = ?::bigint",
    *run({ tables }, transaction, [text, id]) {
      const limit = text === null ? null : BigInt(text);
      const row = yield* tables.accounts.update(transaction, id, (before) =>
        limit === null || before.credit_nano - before.posted_nano - before.held_nano + limit >= 0n
          ? { ...before, credit_limit_nano: limit }
          : undefined,
      );
      return written(row === undefined ? 0 : 1);
    },
  },
  {
    name: "order without effect",
    begins: "UPDATE credit_commands SET transaction_id = NULL, refused_code =",
    *run({ tables }, transaction, [id]) {
      yield* tables.creditCommands.update(transaction, id, (before) => ({
        ...before,
        transaction_id: null,
        refused_code: "insufficient_credits",
      }));
      return written(1);
    },
  },
  {
    name: "refuse order",
    begins: "UPDATE credit_commands SET done_at = clock_timestamp(), refused_code =",
    *run({ tables, nowMs }, transaction, [id]) {
      const row = yield* tables.creditCommands.update(transaction, id, (before) =>
        before.done_at === null
          ? { ...before, done_at: new Date(nowMs()), refused_code: "insufficient_credits" }
          : undefined,
      );
      return written(row === undefined ? 0 : 1);
    },
  },
];
