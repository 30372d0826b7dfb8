-- Emits credits.low. The trigger's condition: what an organization may still spend has fallen below its threshold,
-- which is 10 % of its last top-up and at least 1.00 USD. Without a credit limit the event reports the balance; with
-- one, it reports the balance at which the threshold is reached. The trigger sees every writer of the account, under
-- the lock of its row, so each crossing is reported once. An organization with unlimited credit (null) has no
-- threshold.
--
-- Trigger of accounts.
CREATE OR REPLACE FUNCTION emit_credits_low() RETURNS trigger
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
$$;
