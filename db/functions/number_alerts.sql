-- Numbers at most p_most alerts, and makes the channels due that may have to send them. Returns the number of alerts. It
-- is 0 too if another instance is numbering. A number is visible only after all lower ones. A member whose role is among
-- p_self_only becomes due only for alerts about its keys or its budget.
--
-- It writes the rows of all these channels, even of those that are due already: an owner that finds nothing more to send
-- records that under the lock of the row. So either it sees these alerts, or the channel becomes due afterwards.
--
-- Finds its rows one by one: see webhook_due_at. Called by numberAlerts in db/queries/alert-delivery.ts.
CREATE OR REPLACE FUNCTION number_alerts(p_most integer, p_self_only text[]) RETURNS integer
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off
AS $$
DECLARE
  v_last bigint;
  v_count integer := 0;
  v_organizations text[] := '{}';
  v_kinds text[] := '{}';
  v_members text[] := '{}';
  r record;
  c record;
BEGIN
  PERFORM 1 FROM alerts WHERE sequence IS NULL LIMIT 1;
  IF NOT FOUND THEN
    RETURN 0;
  END IF;
  INSERT INTO alert_numbering (id, last_sequence)
  SELECT 1, 0 WHERE NOT EXISTS (SELECT 1 FROM alert_numbering) ON CONFLICT DO NOTHING;
  SELECT last_sequence INTO v_last FROM alert_numbering WHERE id = 1 FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN 0;
  END IF;
  -- A separate statement, because its snapshot is newer than the lock.
  FOR r IN
    SELECT id, organization_id, kind, member_id FROM alerts WHERE sequence IS NULL ORDER BY id LIMIT p_most
  LOOP
    v_count := v_count + 1;
    UPDATE alerts SET sequence = v_last + v_count WHERE id = r.id;
    v_organizations := v_organizations || r.organization_id;
    v_kinds := v_kinds || r.kind;
    v_members := array_append(v_members, r.member_id);
  END LOOP;
  UPDATE alert_numbering SET last_sequence = v_last + v_count WHERE id = 1;
  FOR r IN
    SELECT n.organization_id, array_agg(DISTINCT n.kind) AS kinds, array_agg(DISTINCT n.member_id) AS members
    FROM unnest(v_organizations, v_kinds, v_members) AS n (organization_id, kind, member_id)
    GROUP BY n.organization_id
  LOOP
    FOR c IN
      SELECT a.id FROM alert_channels a
      LEFT JOIN LATERAL (SELECT * FROM members WHERE members.id = a.member_id LIMIT 1) m ON true
      WHERE a.organization_id = r.organization_id AND a.enabled AND a.alerts && r.kinds
        AND (a.member_id IS NULL OR m.is_active AND m.deleted_at IS NULL
          AND (m.role <> ALL (p_self_only) OR a.member_id = ANY (r.members)))
    LOOP
      UPDATE alert_states SET due_at = coalesce(due_at, clock_timestamp()) WHERE channel_id = c.id;
    END LOOP;
  END LOOP;
  RETURN v_count;
END
$$;
