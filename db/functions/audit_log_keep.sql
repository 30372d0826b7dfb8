-- Rejects changes of the audit log. The only statement it allows is a DELETE of entries that are older than the number
-- of days in gateway.audit_log_days, a setting of the deleting transaction.
--
-- Trigger of audit_log.
CREATE OR REPLACE FUNCTION audit_log_keep() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'DELETE' AND OLD.created_at < clock_timestamp() - make_interval(
    days => greatest(1, nullif(current_setting('gateway.audit_log_days', true), '')::integer))
  THEN
    RETURN OLD;
  END IF;
  RAISE EXCEPTION 'entries of the audit log are neither changed nor deleted' USING ERRCODE = '42501';
END $$;
