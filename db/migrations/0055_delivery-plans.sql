-- The functions that number and deliver events, with plans that do not depend on statistics. The tables of events and
-- deliveries grow from nothing to hundreds of thousands of rows between two runs of ANALYZE, and a session keeps its
-- plans. A join that was planned for one row read the whole table, or its whole index, for each batch. So each of these
-- statements finds its rows one by one: by a loop, or by a lateral subquery with LIMIT, which the planner cannot turn
-- around. Without sequential scans the only way to such a row is its index.
--
-- Returns when a webhook's first delivery is due, null if it has none or may not have any now. Volatile, so that a
-- statement that waited for the row of the queue judges by what is committed after the wait.
CREATE OR REPLACE FUNCTION webhook_due_at(p_webhook text) RETURNS timestamptz
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off
AS $$
DECLARE
  v_due timestamptz;
BEGIN
  PERFORM 1 FROM webhooks WHERE id = p_webhook AND enabled;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  SELECT coalesce(next_attempt_at, clock_timestamp()) INTO v_due FROM deliveries
  WHERE webhook_id = p_webhook AND status = 'pending' ORDER BY sequence LIMIT 1;
  RETURN v_due;
END
$$;
--> statement-breakpoint
-- Writes what owners of webhooks have decided, for many webhooks in one statement and one commit. Members of p_batch:
--   instance, epoch   the instance that writes
--   leases            {w: webhook, e: epoch}: every webhook that the other members name
--   attempts          {w, o: outbox id, n: attempts before it, s: status now, a: the attempt as it is
--                     listed, d: milliseconds until the next one}
--   disabled          {w, v: version of the webhook that failed}
--   rested            webhooks whose due time is set
--   numbered          webhooks of an earlier version's owners that ask for their events to be numbered;
--                     limit goes with it
-- Returns {lost: webhooks whose lease has passed on, of which nothing was written; numbered: {webhook: count}}. Skips what is already written, so
-- that a batch of unknown outcome can be written again. Locks rows of each table in the order of their ids, as every
-- transaction that locks several of them does.
CREATE OR REPLACE FUNCTION commit_deliveries(p_batch jsonb) RETURNS jsonb
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off
AS $$
DECLARE
  v_instance text := p_batch->>'instance';
  v_epoch bigint := p_batch->>'epoch';
  v_is_alive boolean;
  v_held text[] := '{}';
  v_lost text[] := '{}';
  v_numbered jsonb := '{}';
  r record;
BEGIN
  PERFORM 1 FROM instances WHERE id = v_instance AND epoch = v_epoch AND alive FOR KEY SHARE;
  v_is_alive := FOUND;
  FOR r IN
    SELECT * FROM jsonb_to_recordset(p_batch->'leases') AS wanted (w text, e bigint) ORDER BY wanted.w
  LOOP
    IF v_is_alive THEN
      PERFORM 1 FROM actor_leases
      WHERE kind = 'webhook' AND id = r.w AND epoch = r.e AND instance_id = v_instance AND instance_epoch = v_epoch
      FOR SHARE;
    END IF;
    IF v_is_alive AND FOUND THEN
      v_held := v_held || r.w;
    ELSE
      v_lost := v_lost || r.w;
    END IF;
  END LOOP;

  IF p_batch ? 'numbered' THEN
    PERFORM number_events(v_instance, v_epoch, '', 64, 2048);
    SELECT coalesce(jsonb_object_agg(w.id, CASE WHEN EXISTS (
        SELECT 1 FROM unnumbered_events u WHERE u.organization_id = w.organization_id)
      THEN (p_batch->>'limit')::integer ELSE 0 END), '{}') INTO v_numbered
    FROM webhooks w
    WHERE w.id = ANY (v_held) AND w.id = ANY (ARRAY(SELECT jsonb_array_elements_text(p_batch->'numbered')));
  END IF;

  FOR r IN
    SELECT * FROM jsonb_to_recordset(p_batch->'attempts')
      AS made (w text, o bigint, n integer, s text, a jsonb, d float8)
    WHERE made.w = ANY (v_held) ORDER BY made.w, made.o, made.n
  LOOP
    -- finished_at is null as long as the delivery is pending. With the status in its place, the index of pending
    -- deliveries would do as well, and all those of the webhook would be read.
    UPDATE deliveries SET status = r.s, attempt_count = attempt_count + 1, attempts = attempts || r.a,
      next_attempt_at = clock_timestamp() + r.d * interval '1 millisecond',
      finished_at = CASE WHEN r.s <> 'pending' THEN clock_timestamp() END
    WHERE webhook_id = r.w AND outbox_id = r.o AND finished_at IS NULL AND attempt_count = r.n;
  END LOOP;

  FOR r IN
    SELECT * FROM jsonb_to_recordset(p_batch->'disabled') AS failed (w text, v bigint)
    WHERE failed.w = ANY (v_held) ORDER BY failed.w
  LOOP
    UPDATE webhooks SET enabled = false, disabled_at = clock_timestamp(), disabled_by = 'failures',
      version = version + 1
    WHERE id = r.w AND version = r.v AND enabled;
    IF FOUND THEN
      INSERT INTO changes (kind, object_id) VALUES ('webhook', r.w);
      PERFORM pg_notify('gateway_changes', 'webhook ' || r.w);
    END IF;
  END LOOP;

  FOR r IN
    SELECT rested.w FROM jsonb_array_elements_text(p_batch->'rested') AS rested (w)
    WHERE rested.w = ANY (v_held) ORDER BY rested.w
  LOOP
    -- Behind the lock, so that a number given meanwhile is seen.
    PERFORM 1 FROM webhook_queues WHERE webhook_id = r.w FOR NO KEY UPDATE;
    UPDATE webhook_queues SET due_at = webhook_due_at(webhook_id) WHERE webhook_id = r.w;
  END LOOP;
  RETURN jsonb_build_object('lost', to_jsonb(v_lost), 'numbered', v_numbered);
END
$$;
--> statement-breakpoint
-- Numbers events, in one turn: assigns them to the webhooks that subscribe to them, as deliveries. It serves
-- the organizations after p_after, in the order of their ids, at most p_most_organizations of them; each gets
-- an equal share of p_most_rows, the number of pairs of event and webhook that are read. An event of an
-- organization with more webhooks than its share is assigned over several turns.
--
-- Events of one organization are numbered in the order of their ids, under the lock of its row in
-- event_queues. Ids are handed out before commits, but an event in sight has everything it may have been
-- caused by in sight beside it, under lower ids; one that comes into sight late gets the next number then.
-- A webhook gets the events that were not in sight when it was made, of the types that it has by now.
--
-- Returns {numbered: rows written; webhooks: those of them with something to do now, {webhook: the live instance
-- that acts for it, or null}; last: the
-- organization to go on behind, null where this was the last one; is_more: true where one that was served has
-- more to come}. Nothing is done for an instance that was declared dead.
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
  -- Another instance serves those whose rows are locked.
  v_locked := ARRAY(
    SELECT organization_id FROM event_queues WHERE organization_id = ANY (v_waiting)
    ORDER BY organization_id FOR UPDATE SKIP LOCKED);

  -- An organization without this row has never had a webhook.
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
      AND (NOT pg_visible_in_snapshot(o.xid, q.numbered)
        -- A database that was restored elsewhere counts transactions anew: only its rows tell then.
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

  -- Always before its deliveries are written: an owner that finds nothing more to send, and notes so, does it
  -- under the same lock. In the order of ids, as everybody who locks several of them.
  v_queues := ARRAY(
    SELECT q.webhook_id FROM webhook_queues q WHERE q.webhook_id = ANY (v_webhooks)
    ORDER BY q.webhook_id FOR NO KEY UPDATE);

  -- A delivery that is there already is one that the previous version has numbered.
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
