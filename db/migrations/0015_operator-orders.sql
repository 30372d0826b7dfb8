DROP INDEX "credit_commands_idempotency";--> statement-breakpoint
ALTER TABLE "credit_commands" DROP COLUMN "operator_key_id";--> statement-breakpoint
ALTER TABLE "credit_commands" DROP COLUMN "idempotency_key";--> statement-breakpoint
ALTER TABLE "credit_commands" DROP COLUMN "body_hash";
--> statement-breakpoint
-- How much of a charge was given back so far, by an operator or because its answer never left. To be asked
-- under the lock of the organization's account. A refund of a version before charge_refunds is counted too.
CREATE FUNCTION refunded_nano(p_charge transactions) RETURNS bigint
LANGUAGE sql STABLE AS $$
  SELECT coalesce(
    (SELECT r.refunded_nano FROM charge_refunds r WHERE r.transaction_id = p_charge.id),
    (SELECT t.amount_nano FROM transactions t WHERE t.refunded_request_id = p_charge.request_id),
    0);
$$;--> statement-breakpoint
-- As before, less what an operator has given back of the charge already.
CREATE OR REPLACE FUNCTION ledger_refund(
  p_transaction text, p_request text, p_day_account text, p_month_account text, p_description text
) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
  v_charge transactions;
  v_account accounts;
  v_amount bigint;
BEGIN
  SELECT * INTO v_charge FROM transactions WHERE request_id = p_request;
  IF NOT FOUND OR v_charge.amount_nano = 0 THEN
    RETURN false;
  END IF;
  -- In the order in which batches lock.
  PERFORM 1 FROM accounts
  WHERE id IN ('org:' || v_charge.organization_id, p_day_account, p_month_account) ORDER BY id FOR UPDATE;
  -- Behind the locks: what another writer has given back is seen.
  PERFORM 1 FROM transactions WHERE refunded_request_id = p_request;
  IF FOUND THEN
    RETURN false;
  END IF;
  v_amount := -v_charge.amount_nano - refunded_nano(v_charge);
  IF v_amount <= 0 THEN
    RETURN false;
  END IF;
  UPDATE accounts SET posted_nano = greatest(posted_nano + v_charge.amount_nano, 0), sequence = sequence + 1
  WHERE id IN (p_day_account, p_month_account) AND key_id = v_charge.key_id;
  UPDATE accounts SET credit_nano = credit_nano + v_amount, sequence = sequence + 1
  WHERE id = 'org:' || v_charge.organization_id
  RETURNING * INTO v_account;
  INSERT INTO transactions (organization_id, sequence, id, type, amount_nano, balance_after_nano,
    description, key_id, refunded_request_id)
  VALUES (v_charge.organization_id, v_account.sequence, p_transaction, 'refund', v_amount,
    v_account.credit_nano - v_account.posted_nano, p_description, v_charge.key_id, p_request);
  INSERT INTO charge_refunds (transaction_id, organization_id, refunded_nano)
  VALUES (v_charge.id, v_charge.organization_id, -v_charge.amount_nano)
  ON CONFLICT (transaction_id) DO UPDATE SET refunded_nano = EXCLUDED.refunded_nano;
  INSERT INTO changes (kind, object_id)
  VALUES ('organization', v_charge.organization_id), ('api-key', v_charge.key_id);
  PERFORM pg_notify('gateway_changes', 'organization ' || v_charge.organization_id);
  PERFORM pg_notify('gateway_changes', 'api-key ' || v_charge.key_id);
  RETURN true;
END
$$;--> statement-breakpoint
-- Gives back a part of a charge, or what is left of it where p_amount_nano is null, to the organization;
-- budgets of keys stay as they are. One row: what was left before, and the transaction, null where the
-- amount is more than what was left. No row where the organization has no such charge.
CREATE FUNCTION ledger_refund_part(
  p_transaction text, p_organization text, p_charge text, p_amount_nano bigint, p_description text
) RETURNS TABLE (left_nano bigint, amount_nano bigint, balance_after_nano bigint, created_at timestamptz)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  v_charge transactions;
  v_account accounts;
  v_left bigint;
  v_amount bigint;
BEGIN
  -- The id of a charge is that of its request, which has an index.
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
