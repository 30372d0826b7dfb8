-- Emits webhook.disabled. The trigger's condition: the failures of its receiver have disabled a webhook. The event names
-- only the host of the URL, because the rest may hold a secret.
--
-- Trigger of webhooks.
CREATE OR REPLACE FUNCTION emit_webhook_disabled() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO outbox (event_id, organization_id, type, data)
  VALUES ('evt_' || replace(gen_random_uuid()::text, '-', ''), NEW.organization_id, 'webhook.disabled',
    jsonb_build_object('webhook_id', NEW.id, 'host', substring(NEW.url FROM '^https?://([^/?#]+)')));
  RETURN NULL;
END
$$;
