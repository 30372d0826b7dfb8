-- Resumes automatic top-ups after declines when the organization gets another default payment method.
--
-- Trigger of payment_methods.
CREATE OR REPLACE FUNCTION resume_replenishment() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  UPDATE auto_replenish
  SET declines = 0, due_at = CASE WHEN intent_id IS NULL THEN clock_timestamp() ELSE due_at END
  WHERE organization_id = NEW.organization_id AND is_enabled AND method_id IS NULL AND declines > 0;
  IF FOUND THEN
    PERFORM pg_notify('gateway_changes', 'replenish ' || NEW.organization_id);
  END IF;
  RETURN NULL;
END
$$;
