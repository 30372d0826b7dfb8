-- Numbers events, in one turn: assigns them to the webhooks that subscribe to them, as deliveries. It serves the
-- organizations after p_after, in the order of their ids, at most p_most_organizations of them. Each gets an equal
-- share of p_most_rows, the number of pairs of event and webhook that are read. An event of an organization with more
-- webhooks than its share is assigned over several turns.
--
-- Events of one organization are numbered in the order of their ids, under the lock of its row in event_queues. Ids are
-- assigned before commits. But when an event is visible, all events that may have caused it are visible too, with lower
-- ids. An event that becomes visible late gets the next number then. A webhook gets the events that were not visible
-- when it was created, of the types that it has now.
--
-- Returns {numbered: number of deliveries; webhooks: those with work now, {webhook: the live instance that owns it, or
-- null}; last: the organization after which the next turn begins, null if this was the last one; is_more: true if an
-- organization of this turn has more events}. Does nothing if the instance was declared dead.
--
-- Finds its rows one by one: see webhook_due_at. Called by sequenceEvents in db/queries/outbox.ts, and by a restore.
CREATE OR REPLACE FUNCTION number_events(
  p_instance text, p_epoch bigint, p_after text, p_most_organizations integer, p_most_rows integer
) RETURNS jsonb
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
  v_waiting text[];
  v_share integer;
  v_locked text[];
  v_organizations text[];
  v_sequences_after bigint[];
  v_partial_events bigint[];
  v_partial_webhooks text[];
  v_done_organizations text[];
  v_done_events bigint[];
  v_webhooks text[];
  v_events bigint[];
  v_sequences bigint[];
  v_queues text[];
  v_numbered bigint := 0;
  v_unwanted bigint := 0;
  v_removed bigint;
  v_is_more boolean := false;
  r record;
BEGIN
  PERFORM 1 FROM instances WHERE id = p_instance AND epoch = p_epoch AND alive FOR KEY SHARE;
  IF NOT FOUND THEN
    RETURN '{"numbered": 0, "webhooks": {}, "last": null, "is_more": false}';
  END IF;
  v_waiting := ARRAY(
    WITH RECURSIVE waiting AS (
      (SELECT organization_id FROM unnumbered_events WHERE organization_id > p_after
      ORDER BY organization_id LIMIT 1)
      UNION ALL
      SELECT (SELECT u.organization_id FROM unnumbered_events u WHERE u.organization_id > w.organization_id
        ORDER BY u.organization_id LIMIT 1)
      FROM waiting w WHERE w.organization_id IS NOT NULL)
    SELECT organization_id FROM waiting WHERE organization_id IS NOT NULL LIMIT p_most_organizations);
  IF v_waiting = '{}' THEN
    RETURN '{"numbered": 0, "webhooks": {}, "last": null, "is_more": false}';
  END IF;
  v_share := greatest(1, p_most_rows / cardinality(v_waiting));
  -- Another instance serves the organizations whose rows are locked.
  v_locked := ARRAY(
    SELECT organization_id FROM event_queues WHERE organization_id = ANY (v_waiting)
    ORDER BY organization_id FOR UPDATE SKIP LOCKED);

  -- An organization without a row in event_queues has never had a webhook.
  FOR r IN
    SELECT w.organization_id FROM unnest(v_waiting) AS w (organization_id)
    WHERE (SELECT 1 FROM event_queues q WHERE q.organization_id = w.organization_id) IS NULL
  LOOP
    DELETE FROM unnumbered_events u WHERE u.organization_id = r.organization_id AND u.outbox_id <= (
      SELECT max(n.outbox_id) FROM (
        SELECT outbox_id FROM unnumbered_events WHERE organization_id = r.organization_id
        ORDER BY outbox_id LIMIT v_share) n);
    GET DIAGNOSTICS v_removed = ROW_COUNT;
    v_unwanted := v_unwanted + v_removed;
  END LOOP;

  WITH turn AS MATERIALIZED (
    SELECT q.*, (SELECT count(*) FROM (
      SELECT 1 FROM webhooks w WHERE w.organization_id = q.organization_id LIMIT v_share + 1) few) AS webhook_count
    FROM event_queues q WHERE q.organization_id = ANY (v_locked)
  ), sized AS MATERIALIZED (
    SELECT t.*, t.partial_event IS NOT NULL OR t.webhook_count > v_share AS is_split,
      CASE WHEN t.partial_event IS NOT NULL OR t.webhook_count > v_share THEN 1
        ELSE v_share / greatest(1, t.webhook_count) END AS most_events
    FROM turn t
  ), event AS MATERIALIZED (
    SELECT s.organization_id, e.outbox_id,
      s.last_sequence + row_number() OVER (PARTITION BY s.organization_id ORDER BY e.outbox_id) AS sequence
    FROM sized s CROSS JOIN LATERAL (
      SELECT u.outbox_id FROM unnumbered_events u
      WHERE u.organization_id = s.organization_id AND u.outbox_id >= coalesce(s.partial_event, 0)
      ORDER BY u.outbox_id LIMIT s.most_events) e
  ), pair AS MATERIALIZED (
    SELECT e.organization_id, e.outbox_id, e.sequence, w.id AS webhook_id, w.events, w.created_at
    FROM event e JOIN sized s USING (organization_id) CROSS JOIN LATERAL (
      SELECT w.id, w.events, w.created_at FROM webhooks w
      WHERE w.organization_id = e.organization_id AND w.id > coalesce(s.partial_webhook, '')
      ORDER BY w.id LIMIT v_share) w
  ), ended AS MATERIALIZED (
    SELECT s.organization_id, s.is_split, s.most_events, count(DISTINCT e.outbox_id) AS event_count,
      max(e.sequence) AS last_sequence, max(e.outbox_id) AS last_event, max(p.webhook_id) AS last_webhook,
      NOT s.is_split OR count(p.webhook_id) < v_share AS is_done
    FROM sized s JOIN event e USING (organization_id)
    LEFT JOIN pair p ON p.organization_id = e.organization_id AND p.outbox_id = e.outbox_id
    GROUP BY s.organization_id, s.is_split, s.most_events
  ), wanted AS MATERIALIZED (
    SELECT p.webhook_id, p.outbox_id, p.sequence FROM pair p
    CROSS JOIN LATERAL (SELECT * FROM outbox WHERE id = p.outbox_id LIMIT 1) o
    CROSS JOIN LATERAL (SELECT * FROM webhook_queues WHERE webhook_id = p.webhook_id LIMIT 1) q
    WHERE (o.type = ANY (p.events) OR '*' = ANY (p.events))
      -- A webhook does not get the event that it was disabled.
      AND (o.type <> 'webhook.disabled' OR o.data->>'webhook_id' <> p.webhook_id)
      AND (NOT pg_visible_in_snapshot(o.xid, q.numbered)
        -- A database that was restored on another server counts transactions from the start. Then the times of the
        -- rows decide.
        OR pg_snapshot_xmax(q.numbered) > pg_snapshot_xmax(pg_current_snapshot()) AND o.created_at > p.created_at)
  )
  SELECT
    (SELECT coalesce(bool_or(NOT is_done OR is_split OR event_count = most_events), false) FROM ended),
    (SELECT array_agg(organization_id ORDER BY organization_id) FROM ended),
    (SELECT array_agg(CASE WHEN is_done THEN last_sequence END ORDER BY organization_id) FROM ended),
    (SELECT array_agg(CASE WHEN NOT is_done THEN last_event END ORDER BY organization_id) FROM ended),
    (SELECT array_agg(CASE WHEN NOT is_done THEN last_webhook END ORDER BY organization_id) FROM ended),
    (SELECT array_agg(e.organization_id ORDER BY e.outbox_id)
      FROM event e JOIN ended d USING (organization_id) WHERE d.is_done),
    (SELECT array_agg(e.outbox_id ORDER BY e.outbox_id)
      FROM event e JOIN ended d USING (organization_id) WHERE d.is_done),
    (SELECT array_agg(webhook_id ORDER BY webhook_id, outbox_id) FROM wanted),
    (SELECT array_agg(outbox_id ORDER BY webhook_id, outbox_id) FROM wanted),
    (SELECT array_agg(sequence ORDER BY webhook_id, outbox_id) FROM wanted)
  INTO v_is_more, v_organizations, v_sequences_after, v_partial_events, v_partial_webhooks,
    v_done_organizations, v_done_events, v_webhooks, v_events, v_sequences;

  -- Locks the queues before it writes deliveries: an owner that finds nothing more to send records that under the
  -- same lock. Every transaction that locks several queues does so in the order of ids.
  v_queues := ARRAY(
    SELECT q.webhook_id FROM webhook_queues q WHERE q.webhook_id = ANY (v_webhooks)
    ORDER BY q.webhook_id FOR NO KEY UPDATE);

  -- An event is assigned to a webhook once.
  INSERT INTO deliveries (webhook_id, outbox_id, sequence, event_id, event_type)
  SELECT p.webhook_id, p.outbox_id, p.sequence, o.event_id, o.type
  FROM unnest(v_webhooks, v_events, v_sequences) AS p (webhook_id, outbox_id, sequence)
  JOIN unnest(v_queues) AS q (webhook_id) USING (webhook_id)
  CROSS JOIN LATERAL (SELECT event_id, type FROM outbox WHERE id = p.outbox_id LIMIT 1) o
  ORDER BY p.webhook_id, p.sequence
  ON CONFLICT DO NOTHING;
  GET DIAGNOSTICS v_numbered = ROW_COUNT;

  UPDATE webhook_queues q SET due_at = clock_timestamp()
  WHERE q.webhook_id = ANY (v_queues) AND q.due_at IS NULL
    AND (SELECT enabled FROM webhooks w WHERE w.id = q.webhook_id);

  FOR r IN
    SELECT * FROM unnest(v_done_organizations, v_done_events) AS done (organization_id, outbox_id)
  LOOP
    DELETE FROM unnumbered_events WHERE organization_id = r.organization_id AND outbox_id = r.outbox_id;
  END LOOP;

  FOR r IN
    SELECT * FROM unnest(v_organizations, v_sequences_after, v_partial_events, v_partial_webhooks)
      AS reached (organization_id, sequence_after, partial_event, partial_webhook)
  LOOP
    UPDATE event_queues SET last_sequence = coalesce(r.sequence_after, last_sequence),
      partial_event = r.partial_event, partial_webhook = r.partial_webhook
    WHERE organization_id = r.organization_id;
  END LOOP;

  RETURN jsonb_build_object(
    'numbered', v_numbered,
    'webhooks', (
      SELECT coalesce(jsonb_object_agg(q.webhook_id, i.id), '{}') FROM webhook_queues q
      LEFT JOIN LATERAL (
        SELECT * FROM actor_leases WHERE kind = 'webhook' AND actor_leases.id = q.webhook_id LIMIT 1) l ON true
      LEFT JOIN live_instances i ON i.id = l.instance_id AND i.epoch = l.instance_epoch
      WHERE q.webhook_id = ANY (v_queues) AND (i.id IS NOT NULL OR q.due_at <= clock_timestamp())),
    'last', CASE WHEN cardinality(v_waiting) >= p_most_organizations THEN to_jsonb(v_waiting[p_most_organizations])
      ELSE 'null'::jsonb END,
    'is_more', v_is_more OR v_unwanted > 0);
END
$$;
