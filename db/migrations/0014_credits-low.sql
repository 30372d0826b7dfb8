ALTER TABLE "accounts" ADD COLUMN "last_topup_nano" bigint DEFAULT 0 NOT NULL;--> statement-breakpoint
-- As before, and a top-up is remembered: the threshold of credits.low follows it.
CREATE OR REPLACE FUNCTION ledger_post_credit(
  p_transaction text, p_organization text, p_type text, p_amount_nano bigint, p_description text,
  p_held_nano bigint
) RETURNS transactions
LANGUAGE plpgsql AS $$
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
$$;--> statement-breakpoint
-- What an organization may still spend has fallen below its threshold: 10 % of its last top-up, at least
-- 1.00 USD. Without a credit limit that is its balance; with one, the balance at which it is reached is told.
-- A trigger sees every writer of the account, whichever statement, instance or version it is. It fires for the
-- crossing itself, under the lock of the row, so each crossing is reported once; an organization whose credit
-- is unlimited (null) has none.
CREATE FUNCTION emit_credits_low() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO outbox (event_id, organization_id, type, data)
  VALUES ('evt_' || replace(gen_random_uuid()::text, '-', ''), NEW.organization_id, 'credits.low',
    jsonb_build_object(
      'balance_usd', trim_scale((NEW.credit_nano - NEW.posted_nano) / 1e9),
      'threshold_usd',
      trim_scale((greatest(1000000000, NEW.last_topup_nano / 10) - NEW.credit_limit_nano) / 1e9)));
  RETURN NULL;
END
$$;--> statement-breakpoint
CREATE TRIGGER emit_credits_low AFTER UPDATE OF credit_nano, credit_limit_nano, posted_nano ON accounts
FOR EACH ROW WHEN (
  NEW.kind = 'org'
  AND NEW.credit_nano + NEW.credit_limit_nano - NEW.posted_nano < greatest(1000000000, NEW.last_topup_nano / 10)
  AND OLD.credit_nano + OLD.credit_limit_nano - OLD.posted_nano >= greatest(1000000000, OLD.last_topup_nano / 10)
) EXECUTE FUNCTION emit_credits_low();
