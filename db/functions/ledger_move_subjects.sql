-- Adds p_held and p_posted to the accounts of the budgets of a request's end user and tags, for a row of a batch that
-- does not name these accounts itself. The caller has locked the accounts of the organization and key.
--
-- Called by ledger_exchange_batch.
CREATE OR REPLACE FUNCTION ledger_move_subjects(p_accounts jsonb, p_org_account text, p_held bigint, p_posted bigint)
RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  -- A single-node gateway creates the accounts of a request with its charge, so they may not exist yet.
  INSERT INTO accounts (id, kind, organization_id, budget_id, period_start)
  SELECT s.id, split_part(s.id, ':', 1), split_part(p_org_account, ':', 2), split_part(s.id, ':', 2),
    split_part(s.id, ':', 3)::date
  FROM jsonb_array_elements_text(p_accounts) AS s (id) ORDER BY s.id
  ON CONFLICT (id) DO NOTHING;
  PERFORM 1 FROM accounts WHERE id = ANY (ARRAY(SELECT jsonb_array_elements_text(p_accounts))) ORDER BY id FOR UPDATE;
  UPDATE accounts SET held_nano = held_nano + p_held, posted_nano = posted_nano + p_posted
  WHERE id = ANY (ARRAY(SELECT jsonb_array_elements_text(p_accounts)));
END
$$;
