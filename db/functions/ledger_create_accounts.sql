-- Creates the accounts of periods that have no row yet. Each has a key, or the budget of an end user or tag.
--
-- A request's accounts are those of its organization, its key's day and its key's month, and then those of the budgets
-- of its end user and tags. These hold and count the same amounts as the budgets of the key.
--
-- Called by ledger_settle_batch, ledger_exchange_batch, and createAccounts in db/ledger/settle-batch.ts.
CREATE OR REPLACE FUNCTION ledger_create_accounts(p_accounts jsonb) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO accounts (id, kind, organization_id, key_id, budget_id, period_start)
  SELECT n.id, n.kind, n.organization_id, n.key_id, n.budget_id, n.period_start
  FROM jsonb_to_recordset(p_accounts)
    AS n (id text, kind text, organization_id text, key_id text, budget_id text, period_start date)
  ORDER BY n.id
  ON CONFLICT (id) DO NOTHING;
END
$$;
