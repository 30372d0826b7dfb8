-- Gives back what the charge of a request has counted to the accounts of the budgets of its end user and tags. It runs
-- after ledger_refund: the ids of these accounts come last in the order in which accounts are locked.
--
-- Called by db/ledger/credits.ts.
CREATE OR REPLACE FUNCTION ledger_refund_subjects(p_request text, p_accounts jsonb) RETURNS void
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
DECLARE
  v_charge transactions;
  v_budget text;
BEGIN
  SELECT * INTO v_charge FROM transactions WHERE request_id = p_request;
  PERFORM 1 FROM accounts WHERE id IN (SELECT jsonb_array_elements_text(p_accounts)) ORDER BY id FOR UPDATE;
  UPDATE accounts SET sequence = sequence + 1,
    posted_nano = greatest(posted_nano - coalesce(v_charge.budget_nano, -v_charge.amount_nano), 0)
  WHERE id IN (SELECT jsonb_array_elements_text(p_accounts))
    AND organization_id = v_charge.organization_id AND budget_id IS NOT NULL;
  FOR v_budget IN
    SELECT DISTINCT budget_id FROM accounts
    WHERE id IN (SELECT jsonb_array_elements_text(p_accounts)) AND budget_id IS NOT NULL
  LOOP
    INSERT INTO changes (kind, object_id) VALUES ('subject-budget', v_budget);
    PERFORM pg_notify('gateway_changes', 'subject-budget ' || v_budget);
  END LOOP;
END
$$;
