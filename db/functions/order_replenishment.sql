-- Orders an automatic top-up. The trigger's condition: the balance has fallen below the threshold of the organization.
-- The trigger sees every writer of the account, under the lock of its row, so each crossing orders once. A top-up that
-- runs, or that waits after a decline, keeps its time. After three declines (MAX_REPLENISH_DECLINES) nothing is ordered
-- until the owner changes something.
--
-- Trigger of accounts.
CREATE OR REPLACE FUNCTION order_replenishment() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  UPDATE auto_replenish SET crossings = crossings + 1, due_at = coalesce(due_at, clock_timestamp())
  WHERE organization_id = NEW.organization_id AND is_enabled AND declines < 3;
  IF FOUND THEN
    PERFORM pg_notify('gateway_changes', 'replenish ' || NEW.organization_id);
  END IF;
  RETURN NULL;
END
$$;
