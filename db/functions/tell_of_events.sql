-- Queues new events for numbering, in their own transaction, and notifies all instances. It does not notify of
-- completions: they come with charges, and commits that notify wait for each other. Their writer wakes its own
-- instance.
--
-- Trigger of outbox.
CREATE OR REPLACE FUNCTION tell_of_events() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO unnumbered_events (organization_id, outbox_id) SELECT organization_id, id FROM fresh;
  PERFORM pg_notify('gateway_changes', 'outbox ' || organization_id)
  FROM (SELECT DISTINCT organization_id FROM fresh WHERE type NOT LIKE 'completion.%') AS told;
  RETURN NULL;
END
$$;
