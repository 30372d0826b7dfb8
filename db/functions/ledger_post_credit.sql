-- Posts a top-up, refund or adjustment to the organization's balance, and returns the transaction. A negative amount
-- takes at most the amount that is available: rows of holds and p_held_nano, the holds of the caller, reduce it, and
-- the credit limit adds to it. Returns null if the amount is larger, or if the organization does not exist. It records
-- the amount of a top-up, from which the threshold of credits.low follows.
--
-- Called by db/ledger/credits.ts.
CREATE OR REPLACE FUNCTION ledger_post_credit(
  p_transaction text, p_organization text, p_type text, p_amount_nano bigint, p_description text,
  p_held_nano bigint
) RETURNS transactions
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
DECLARE
  v_account accounts;
  v_transaction transactions;
BEGIN
  UPDATE accounts SET credit_nano = credit_nano + p_amount_nano, sequence = sequence + 1,
    last_topup_nano = CASE p_type WHEN 'topup' THEN p_amount_nano ELSE last_topup_nano END
  WHERE id = 'org:' || p_organization
    AND (p_amount_nano >= 0 OR credit_limit_nano IS NULL
      OR credit_nano + credit_limit_nano - posted_nano - held_nano - p_held_nano + p_amount_nano >= 0)
  RETURNING * INTO v_account;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  INSERT INTO transactions (organization_id, sequence, id, type, amount_nano, balance_after_nano, description)
  VALUES (p_organization, v_account.sequence, p_transaction, p_type, p_amount_nano,
    v_account.credit_nano - v_account.posted_nano, p_description)
  RETURNING * INTO v_transaction;
  INSERT INTO changes (kind, object_id) VALUES ('organization', p_organization);
  PERFORM pg_notify('gateway_changes', 'organization ' || p_organization);
  RETURN v_transaction;
END
$$;
