ALTER TABLE "transactions" ADD COLUMN "refunded_request_id" text;--> statement-breakpoint
CREATE UNIQUE INDEX "transactions_refunded" ON "transactions" USING btree ("refunded_request_id") WHERE refunded_request_id IS NOT NULL;--> statement-breakpoint
-- Gives a charge back whose answer never left: the amount to the organization, as a transaction of its
-- own, and to the budgets of the key's day and month that it was charged to. Once: a second time, or where
-- there is no such charge or it came to nothing, this changes nothing and returns false.
--
-- What was spent grows otherwise; sequence of a period counts how often it was taken back, so that of two
-- totals the newer one can be told. Bits of budget events stay: each goes out once in a period.
CREATE FUNCTION ledger_refund(
  p_transaction text, p_request text, p_day_account text, p_month_account text, p_description text
) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
  v_charge transactions;
  v_account accounts;
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
  UPDATE accounts SET posted_nano = greatest(posted_nano + v_charge.amount_nano, 0), sequence = sequence + 1
  WHERE id IN (p_day_account, p_month_account) AND key_id = v_charge.key_id;
  UPDATE accounts SET credit_nano = credit_nano - v_charge.amount_nano, sequence = sequence + 1
  WHERE id = 'org:' || v_charge.organization_id
  RETURNING * INTO v_account;
  INSERT INTO transactions (organization_id, sequence, id, type, amount_nano, balance_after_nano,
    description, key_id, refunded_request_id)
  VALUES (v_charge.organization_id, v_account.sequence, p_transaction, 'refund', -v_charge.amount_nano,
    v_account.credit_nano - v_account.posted_nano, p_description, v_charge.key_id, p_request);
  INSERT INTO changes (kind, object_id)
  VALUES ('organization', v_charge.organization_id), ('api-key', v_charge.key_id);
  PERFORM pg_notify('gateway_changes', 'organization ' || v_charge.organization_id);
  PERFORM pg_notify('gateway_changes', 'api-key ' || v_charge.key_id);
  RETURN true;
END
$$;
