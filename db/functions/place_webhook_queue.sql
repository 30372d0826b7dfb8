-- Fills in the organization of a new webhook's queue, and creates the organization's event queue if it has none.
--
-- Trigger of webhook_queues.
CREATE OR REPLACE FUNCTION place_webhook_queue() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  SELECT organization_id INTO NEW.organization_id FROM webhooks WHERE id = NEW.webhook_id;
  INSERT INTO event_queues (organization_id) VALUES (NEW.organization_id) ON CONFLICT DO NOTHING;
  RETURN NEW;
END
$$;
