-- Gives back a part of a charge to the organization, or all that is left of it if p_amount_nano is null. Budgets of
-- keys do not change. Returns one row: the amount that was left before, and the transaction, which is null if the
-- amount is more than that. Returns no row if the organization has no such charge.
--
-- Called by db/ledger/credits.ts.
CREATE OR REPLACE FUNCTION ledger_refund_part(
  p_transaction text, p_organization text, p_charge text, p_amount_nano bigint, p_description text
) RETURNS TABLE (left_nano bigint, amount_nano bigint, balance_after_nano bigint, created_at timestamptz)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
  v_charge transactions;
  v_account accounts;
  v_left bigint;
  v_amount bigint;
BEGIN
  -- The id of a charge contains that of its request, which has an index.
  SELECT * INTO v_charge FROM transactions t
  WHERE t.request_id = 'req_' || substr(p_charge, 5) AND t.id = p_charge
    AND t.organization_id = p_organization AND t.type = 'usage';
  IF NOT FOUND THEN
    RETURN;
  END IF;
  PERFORM 1 FROM accounts WHERE id = 'org:' || p_organization FOR UPDATE;
  v_left := -v_charge.amount_nano - refunded_nano(v_charge);
  v_amount := coalesce(p_amount_nano, v_left);
  IF v_amount <= 0 OR v_amount > v_left THEN
    RETURN QUERY SELECT v_left, NULL::bigint, NULL::bigint, NULL::timestamptz;
    RETURN;
  END IF;
  UPDATE accounts SET credit_nano = credit_nano + v_amount, sequence = sequence + 1
  WHERE id = 'org:' || p_organization
  RETURNING * INTO v_account;
  INSERT INTO charge_refunds AS r (transaction_id, organization_id, refunded_nano)
  VALUES (p_charge, p_organization, -v_charge.amount_nano - v_left + v_amount)
  ON CONFLICT (transaction_id) DO UPDATE SET refunded_nano = EXCLUDED.refunded_nano;
  INSERT INTO changes (kind, object_id) VALUES ('organization', p_organization);
  PERFORM pg_notify('gateway_changes', 'organization ' || p_organization);
  RETURN QUERY
    INSERT INTO transactions AS t (organization_id, sequence, id, type, amount_nano, balance_after_nano,
      description, key_id)
    VALUES (p_organization, v_account.sequence, p_transaction, 'refund', v_amount,
      v_account.credit_nano - v_account.posted_nano, p_description, v_charge.key_id)
    RETURNING v_left, t.amount_nano, t.balance_after_nano, t.created_at;
END
$$;
