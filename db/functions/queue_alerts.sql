-- Copies new events into alerts, in their own transaction, if their organization has a channel for them. An alert names
-- the member whose key or budget it concerns.
--
-- Finds its rows one by one: see webhook_due_at. Trigger of outbox.
CREATE OR REPLACE FUNCTION queue_alerts() RETURNS trigger
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off
AS $$
DECLARE
  r record;
  v_key text;
  v_member text;
BEGIN
  FOR r IN
    SELECT f.id, f.organization_id, f.type, f.data, f.created_at, alert_kind(f.type, f.data) AS kind FROM fresh f
    WHERE f.type NOT IN ('completion.success', 'completion.error')
    ORDER BY f.id
  LOOP
    CONTINUE WHEN r.kind IS NULL;
    PERFORM 1 FROM alert_channels c
    WHERE c.organization_id = r.organization_id AND c.enabled AND r.kind = ANY (c.alerts) LIMIT 1;
    CONTINUE WHEN NOT FOUND;
    v_member := NULL;
    IF r.data->'subject'->>'type' = 'member' THEN
      v_member := r.data->'subject'->>'id';
    ELSE
      v_key := coalesce(r.data->>'key_id', (SELECT key_id FROM fine_tuning_jobs WHERE id = r.data->>'job_id'));
      SELECT owner_id INTO v_member FROM api_keys WHERE id = v_key;
    END IF;
    INSERT INTO alerts (id, organization_id, kind, member_id, type, data, created_at)
    VALUES (r.id, r.organization_id, r.kind, v_member, r.type, r.data, r.created_at)
    ON CONFLICT DO NOTHING;
  END LOOP;
  RETURN NULL;
END
$$;
