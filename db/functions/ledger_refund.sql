-- Gives a charge back whose answer was never sent: the amount to the organization as a transaction of its own, and to
-- the budgets of the key's day and month. The budgets get back what they counted, even if the charge was zero. Amounts
-- that an operator has already refunded are deducted. Returns false, and changes nothing, if the charge does not exist,
-- amounts to nothing, or was given back before.
--
-- The sequence of a period counts how often an amount was given back, so that a reader can recognise the newer of two
-- totals. Bits of budget_events stay, because each event is emitted once per period.
--
-- Called by db/ledger/credits.ts.
CREATE OR REPLACE FUNCTION ledger_refund(
  p_transaction text, p_request text, p_day_account text, p_month_account text, p_description text
) RETURNS boolean
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
DECLARE
  v_charge transactions;
  v_account accounts;
  v_amount bigint;
  v_budget bigint;
BEGIN
  SELECT * INTO v_charge FROM transactions WHERE request_id = p_request;
  v_budget := coalesce(v_charge.budget_nano, -v_charge.amount_nano);
  IF NOT FOUND OR (v_charge.amount_nano = 0 AND v_budget = 0) THEN
    RETURN false;
  END IF;
  -- Locks in the order in which batches lock.
  PERFORM 1 FROM accounts
  WHERE id IN ('org:' || v_charge.organization_id, p_day_account, p_month_account) ORDER BY id FOR UPDATE;
  -- Reads under the locks, so that it sees a refund by another writer.
  PERFORM 1 FROM transactions WHERE refunded_request_id = p_request;
  IF FOUND THEN
    RETURN false;
  END IF;
  v_amount := -v_charge.amount_nano - refunded_nano(v_charge);
  IF v_amount <= 0 AND v_charge.amount_nano <> 0 THEN
    RETURN false;
  END IF;
  UPDATE accounts SET posted_nano = greatest(posted_nano - v_budget, 0), sequence = sequence + 1
  WHERE id IN (p_day_account, p_month_account) AND key_id = v_charge.key_id;
  UPDATE accounts SET credit_nano = credit_nano + v_amount, sequence = sequence + 1
  WHERE id = 'org:' || v_charge.organization_id
  RETURNING * INTO v_account;
  INSERT INTO transactions (organization_id, sequence, id, type, amount_nano, balance_after_nano,
    description, key_id, refunded_request_id, budget_nano)
  VALUES (v_charge.organization_id, v_account.sequence, p_transaction, 'refund', v_amount,
    v_account.credit_nano - v_account.posted_nano, p_description, v_charge.key_id, p_request,
    -v_charge.budget_nano);
  INSERT INTO charge_refunds (transaction_id, organization_id, refunded_nano)
  VALUES (v_charge.id, v_charge.organization_id, -v_charge.amount_nano)
  ON CONFLICT (transaction_id) DO UPDATE SET refunded_nano = EXCLUDED.refunded_nano;
  INSERT INTO changes (kind, object_id)
  VALUES ('organization', v_charge.organization_id), ('api-key', v_charge.key_id);
  PERFORM pg_notify('gateway_changes', 'organization ' || v_charge.organization_id);
  PERFORM pg_notify('gateway_changes', 'api-key ' || v_charge.key_id);
  RETURN true;
END
$$;
