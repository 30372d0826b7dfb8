ALTER TABLE "webhook_queues" SET (fillfactor = 50);
--> statement-breakpoint
ALTER TABLE "deliveries" SET (fillfactor = 70);
--> statement-breakpoint
-- Tells every instance that there is something to deliver. Events of completions are left out: they come
-- with charges, and commits that notify wait for one another; who writes them wakes its own instance.
CREATE FUNCTION tell_of_events() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_notify('gateway_changes', 'outbox ' || organization_id)
  FROM (SELECT DISTINCT organization_id FROM fresh WHERE type NOT LIKE 'completion.%') AS told;
  RETURN NULL;
END
$$;
--> statement-breakpoint
CREATE TRIGGER outbox_tell AFTER INSERT ON outbox
REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION tell_of_events();
--> statement-breakpoint
-- When a webhook's first delivery is due, null where it has none or is not to have any now. Volatile, so
-- that a statement that waited for the row of the queue judges by what stands after the wait.
CREATE FUNCTION webhook_due_at(p_webhook text) RETURNS timestamptz
LANGUAGE sql VOLATILE AS $$
  SELECT coalesce(d.next_attempt_at, clock_timestamp())
  FROM webhooks w JOIN deliveries d ON d.webhook_id = w.id AND d.status = 'pending'
  WHERE w.id = p_webhook AND w.enabled
  ORDER BY d.sequence LIMIT 1
$$;
--> statement-breakpoint
-- Numbers the events that these webhooks subscribe to and that were not in sight the last time, in the
-- order of their ids; p_types are all types there are. One statement, and so one snapshot: an event in
-- sight has everything it may have been caused by in sight beside it, under lower ids. One that comes
-- into sight late gets the next number then. Returns how many each webhook got; where that is p_limit
-- there may be more.
CREATE FUNCTION number_deliveries(p_webhooks text[], p_types text[], p_limit integer)
RETURNS TABLE (webhook_id text, numbered_count bigint)
LANGUAGE sql AS $$
  WITH target AS MATERIALIZED (
    SELECT q.webhook_id, q.numbered, q.last_sequence, w.organization_id,
      CASE WHEN '*' = ANY (w.events) THEN p_types ELSE w.events END AS types,
      -- A database that was restored elsewhere counts transactions anew: only its rows tell then.
      pg_snapshot_xmax(q.numbered) > pg_snapshot_xmax(pg_current_snapshot()) AS is_restored, w.created_at
    FROM webhook_queues q JOIN webhooks w ON w.id = q.webhook_id
    WHERE q.webhook_id = ANY (p_webhooks)
  ), found AS MATERIALIZED (
    SELECT t.webhook_id, t.last_sequence, o.id, o.event_id, o.type
    FROM target t CROSS JOIN LATERAL (
      SELECT o.id, o.event_id, o.type FROM outbox o
      WHERE o.organization_id = t.organization_id AND o.type = ANY (t.types)
        AND (o.xid >= pg_snapshot_xmin(t.numbered) AND NOT pg_visible_in_snapshot(o.xid, t.numbered)
          OR t.is_restored AND o.created_at > t.created_at)
        AND NOT EXISTS (
          SELECT 1 FROM deliveries d WHERE d.webhook_id = t.webhook_id AND d.outbox_id = o.id)
      ORDER BY o.id LIMIT p_limit
    ) o
  ), inserted AS (
    INSERT INTO deliveries (webhook_id, outbox_id, sequence, event_id, event_type)
    SELECT f.webhook_id, f.id, f.last_sequence + row_number() OVER (PARTITION BY f.webhook_id ORDER BY f.id),
      f.event_id, f.type
    FROM found f
  ), counted AS (
    SELECT t.webhook_id, count(f.id) AS found_count
    FROM target t LEFT JOIN found f ON f.webhook_id = t.webhook_id GROUP BY t.webhook_id
  )
  UPDATE webhook_queues q
  SET last_sequence = q.last_sequence + c.found_count,
    numbered = CASE WHEN c.found_count < p_limit THEN pg_current_snapshot() ELSE q.numbered END,
    due_at = CASE WHEN c.found_count > 0 AND w.enabled THEN coalesce(q.due_at, clock_timestamp()) ELSE q.due_at END
  FROM counted c JOIN webhooks w ON w.id = c.webhook_id
  WHERE q.webhook_id = c.webhook_id
  RETURNING q.webhook_id, c.found_count
$$;
--> statement-breakpoint
-- What owners of webhooks write, of many webhooks in one statement and one commit. Members of p_batch:
--   instance, epoch   who writes
--   leases            {w: webhook, e: epoch}: everything else concerns webhooks that are named here
--   attempts          {w, o: outbox id, n: attempts before it, s: status now, a: the attempt as it is
--                     listed, d: milliseconds until the next one}
--   disabled          {w, v: version of the webhook that failed}
--   rested            webhooks whose due time is to be set
--   numbered          webhooks whose events are to be numbered; types and limit go with it
-- Returns {lost: webhooks whose lease has passed on, of which nothing was written; numbered: {webhook: count}}.
-- What is already written is passed over, so that a batch of unknown outcome can be written again.
CREATE FUNCTION commit_deliveries(p_batch jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
  v_held text[];
  v_lost text[];
  v_disabled text[];
  v_numbered jsonb;
BEGIN
  PERFORM 1 FROM instances WHERE id = p_batch->>'instance' AND epoch = (p_batch->>'epoch')::bigint AND alive
    FOR KEY SHARE;
  IF FOUND THEN
    v_held := ARRAY(
      SELECT l.id FROM actor_leases l
      JOIN jsonb_to_recordset(p_batch->'leases') AS asked (w text, e bigint) ON asked.w = l.id AND asked.e = l.epoch
      WHERE l.kind = 'webhook' AND l.instance_id = p_batch->>'instance'
        AND l.instance_epoch = (p_batch->>'epoch')::bigint
      ORDER BY l.id FOR SHARE OF l);
  END IF;
  v_lost := ARRAY(
    SELECT asked.w FROM jsonb_to_recordset(p_batch->'leases') AS asked (w text)
    WHERE asked.w <> ALL (coalesce(v_held, '{}')));

  IF p_batch ? 'attempts' THEN
    UPDATE deliveries d SET status = r.s, attempt_count = d.attempt_count + 1, attempts = d.attempts || r.a,
      next_attempt_at = clock_timestamp() + r.d * interval '1 millisecond',
      finished_at = CASE WHEN r.s <> 'pending' THEN clock_timestamp() END
    FROM jsonb_to_recordset(p_batch->'attempts') AS r (w text, o bigint, n integer, s text, a jsonb, d float8)
    WHERE d.webhook_id = r.w AND d.outbox_id = r.o AND d.status = 'pending' AND d.attempt_count = r.n
      AND r.w = ANY (v_held);
  END IF;

  IF p_batch ? 'disabled' THEN
    WITH failed AS (
      UPDATE webhooks w SET enabled = false, disabled_at = clock_timestamp(), disabled_by = 'failures',
        version = w.version + 1
      FROM jsonb_to_recordset(p_batch->'disabled') AS r (w text, v bigint)
      WHERE w.id = r.w AND w.version = r.v AND w.enabled AND r.w = ANY (v_held)
      RETURNING w.id
    ), told AS (
      INSERT INTO changes (kind, object_id) SELECT 'webhook', id FROM failed
    )
    SELECT array_agg(id) INTO v_disabled FROM failed;
    PERFORM pg_notify('gateway_changes', 'webhook ' || id) FROM unnest(v_disabled) AS id;
  END IF;

  IF p_batch ? 'rested' THEN
    UPDATE webhook_queues q SET due_at = webhook_due_at(q.webhook_id)
    WHERE q.webhook_id = ANY (v_held)
      AND q.webhook_id IN (SELECT jsonb_array_elements_text(p_batch->'rested'));
  END IF;

  IF p_batch ? 'numbered' THEN
    SELECT jsonb_object_agg(n.webhook_id, n.numbered_count) INTO v_numbered
    FROM number_deliveries(
      ARRAY(SELECT id FROM jsonb_array_elements_text(p_batch->'numbered') AS id WHERE id = ANY (v_held)),
      ARRAY(SELECT jsonb_array_elements_text(p_batch->'types')), (p_batch->>'limit')::integer) AS n;
  END IF;
  RETURN jsonb_build_object('lost', to_jsonb(v_lost), 'numbered', coalesce(v_numbered, '{}'));
END
$$;
--> statement-breakpoint
-- Removes what is not kept any more (contract 8 and 9), at most p_limit rows of each kind:
--   pending deliveries that waited three days behind a disabled webhook are dropped;
--   deliveries go after 30 days, or with their webhook;
--   events go seven days after the last of their deliveries has ended, and never before they are numbered;
--   leases go with their webhooks.
-- Returns {dropped: {webhook: count}, removed: rows}.
CREATE FUNCTION clean_deliveries(p_types text[], p_limit integer) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
  v_dropped jsonb;
  v_removed bigint := 0;
  v_count bigint;
BEGIN
  WITH expired AS (
    SELECT d.webhook_id, d.outbox_id FROM webhooks w JOIN deliveries d ON d.webhook_id = w.id
    WHERE NOT w.enabled AND w.disabled_at < clock_timestamp() - interval '3 days'
      AND d.status = 'pending' AND d.created_at < clock_timestamp() - interval '3 days'
    LIMIT p_limit
  ), dropped AS (
    UPDATE deliveries d SET status = 'dropped', next_attempt_at = NULL, finished_at = clock_timestamp()
    FROM expired e WHERE d.webhook_id = e.webhook_id AND d.outbox_id = e.outbox_id AND d.status = 'pending'
    RETURNING d.webhook_id
  )
  SELECT jsonb_object_agg(webhook_id, dropped_count) INTO v_dropped
  FROM (SELECT webhook_id, count(*) AS dropped_count FROM dropped GROUP BY webhook_id) AS counted;

  DELETE FROM deliveries WHERE (webhook_id, outbox_id) IN (
    SELECT d.webhook_id, d.outbox_id FROM deliveries d
    WHERE d.created_at < clock_timestamp() - interval '30 days' AND d.status <> 'pending' LIMIT p_limit);
  GET DIAGNOSTICS v_count = ROW_COUNT;
  v_removed := v_removed + v_count;

  -- The lease of a deleted webhook shows what it left behind.
  WITH orphaned AS (
    SELECT l.id FROM actor_leases l
    WHERE l.kind = 'webhook' AND NOT EXISTS (SELECT 1 FROM webhooks w WHERE w.id = l.id) LIMIT 100
  ), removed AS (
    DELETE FROM deliveries WHERE (webhook_id, outbox_id) IN (
      SELECT d.webhook_id, d.outbox_id FROM orphaned o JOIN deliveries d ON d.webhook_id = o.id LIMIT p_limit)
    RETURNING webhook_id
  )
  SELECT count(*) INTO v_count FROM removed;
  v_removed := v_removed + v_count;
  DELETE FROM actor_leases l WHERE l.kind = 'webhook' AND l.instance_id IS NULL
    AND NOT EXISTS (SELECT 1 FROM webhooks w WHERE w.id = l.id)
    AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.webhook_id = l.id);

  DELETE FROM outbox WHERE id IN (
    SELECT o.id FROM outbox o WHERE o.created_at < clock_timestamp() - interval '7 days' AND NOT EXISTS (
      SELECT 1 FROM webhooks w JOIN webhook_queues q ON q.webhook_id = w.id
      LEFT JOIN deliveries d ON d.webhook_id = w.id AND d.outbox_id = o.id
      WHERE w.organization_id = o.organization_id AND CASE WHEN d.outbox_id IS NULL
        THEN o.type = ANY (CASE WHEN '*' = ANY (w.events) THEN p_types ELSE w.events END)
          AND NOT pg_visible_in_snapshot(o.xid, q.numbered)
        ELSE d.status = 'pending' OR d.finished_at > clock_timestamp() - interval '7 days' END)
    LIMIT p_limit);
  GET DIAGNOSTICS v_count = ROW_COUNT;
  v_removed := v_removed + v_count;

  -- What no sweep would find, should it ever come to that.
  UPDATE webhook_queues q SET due_at = webhook_due_at(q.webhook_id)
  WHERE q.due_at IS NULL AND EXISTS (
    SELECT 1 FROM webhooks w JOIN deliveries d ON d.webhook_id = w.id AND d.status = 'pending'
    WHERE w.id = q.webhook_id AND w.enabled);
  RETURN jsonb_build_object('dropped', coalesce(v_dropped, '{}'), 'removed', v_removed);
END
$$;
