CREATE TABLE "event_queues" (
	"organization_id" text PRIMARY KEY NOT NULL,
	"last_sequence" bigint DEFAULT 0 NOT NULL,
	"partial_event" bigint,
	"partial_webhook" text
);
--> statement-breakpoint
CREATE TABLE "unnumbered_events" (
	"organization_id" text NOT NULL,
	"outbox_id" bigint NOT NULL,
	CONSTRAINT "unnumbered_events_organization_id_outbox_id_pk" PRIMARY KEY("organization_id","outbox_id")
);
--> statement-breakpoint
ALTER TABLE "webhook_queues" ADD COLUMN "organization_id" text DEFAULT '' NOT NULL;--> statement-breakpoint
ALTER TABLE "webhooks" ADD COLUMN "delivery_id_key" uuid DEFAULT gen_random_uuid() NOT NULL;--> statement-breakpoint
ALTER TABLE "webhooks" ADD COLUMN "plain_delivery_ids_up_to" bigint DEFAULT 0 NOT NULL;--> statement-breakpoint
CREATE INDEX "webhook_queues_work" ON "webhook_queues" USING btree ("organization_id","due_at") WHERE due_at IS NOT NULL;--> statement-breakpoint
CREATE INDEX "webhooks_numbering" ON "webhooks" USING btree ("organization_id","id");
--> statement-breakpoint
-- Whoever writes an event or makes a webhook waits until this is committed, so that none is missed.
LOCK TABLE outbox, webhooks, webhook_queues IN SHARE ROW EXCLUSIVE MODE;
--> statement-breakpoint
-- What the previous version has not numbered yet; the snapshots of the webhooks tell which of them are owed it.
INSERT INTO unnumbered_events (organization_id, outbox_id)
SELECT DISTINCT o.organization_id, o.id FROM webhooks w
JOIN webhook_queues q ON q.webhook_id = w.id
JOIN outbox o ON o.organization_id = w.organization_id AND (o.type = ANY (w.events) OR '*' = ANY (w.events))
  AND o.xid >= pg_snapshot_xmin(q.numbered) AND NOT pg_visible_in_snapshot(o.xid, q.numbered)
WHERE NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.webhook_id = w.id AND d.outbox_id = o.id);
--> statement-breakpoint
INSERT INTO event_queues (organization_id, last_sequence)
SELECT w.organization_id, max(q.last_sequence)
FROM webhook_queues q JOIN webhooks w ON w.id = q.webhook_id GROUP BY w.organization_id;
--> statement-breakpoint
UPDATE webhook_queues q SET organization_id = w.organization_id FROM webhooks w WHERE w.id = q.webhook_id;
--> statement-breakpoint
UPDATE webhooks SET plain_delivery_ids_up_to = (SELECT coalesce(max(id), 0) FROM outbox);
--> statement-breakpoint
CREATE FUNCTION place_webhook_queue() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  SELECT organization_id INTO NEW.organization_id FROM webhooks WHERE id = NEW.webhook_id;
  INSERT INTO event_queues (organization_id) VALUES (NEW.organization_id) ON CONFLICT DO NOTHING;
  RETURN NEW;
END
$$;
--> statement-breakpoint
CREATE TRIGGER webhook_queues_place BEFORE INSERT ON webhook_queues
FOR EACH ROW EXECUTE FUNCTION place_webhook_queue();
--> statement-breakpoint
-- Queues events to be numbered, in the transaction of the event, and tells every instance of them. Events of
-- completions are not announced: they come with charges, and commits that notify wait for one another; who
-- writes them wakes its own instance.
CREATE OR REPLACE FUNCTION tell_of_events() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO unnumbered_events (organization_id, outbox_id) SELECT organization_id, id FROM fresh;
  PERFORM pg_notify('gateway_changes', 'outbox ' || organization_id)
  FROM (SELECT DISTINCT organization_id FROM fresh WHERE type NOT LIKE 'completion.%') AS told;
  RETURN NULL;
END
$$;
--> statement-breakpoint
-- One turn of numbering: deals out events to the webhooks that subscribe to them, as deliveries. It serves
-- the organizations behind p_after, in the order of their ids, at most p_most_organizations of them; each gets
-- an equal share of p_most_rows, the number of pairs of event and webhook that are looked at. An event of an
-- organization with more webhooks than its share is dealt out over several turns.
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
CREATE FUNCTION number_events(
  p_instance text, p_epoch bigint, p_after text, p_most_organizations integer, p_most_rows integer
) RETURNS jsonb
LANGUAGE plpgsql
-- A plan that is kept must not be one that was made for empty tables.
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
  v_unwanted bigint;
  v_is_more boolean := false;
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
  DELETE FROM unnumbered_events u USING (
    SELECT w.organization_id, e.outbox_id FROM unnest(v_waiting) AS w (organization_id)
    CROSS JOIN LATERAL (
      SELECT outbox_id FROM unnumbered_events n WHERE n.organization_id = w.organization_id
      ORDER BY outbox_id LIMIT v_share) e
    WHERE NOT EXISTS (SELECT 1 FROM event_queues q WHERE q.organization_id = w.organization_id)) unwanted
  WHERE u.organization_id = unwanted.organization_id AND u.outbox_id = unwanted.outbox_id;
  GET DIAGNOSTICS v_unwanted = ROW_COUNT;

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
    JOIN outbox o ON o.id = p.outbox_id JOIN webhook_queues q ON q.webhook_id = p.webhook_id
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
  JOIN outbox o ON o.id = p.outbox_id
  ORDER BY p.webhook_id, p.sequence
  ON CONFLICT DO NOTHING;
  GET DIAGNOSTICS v_numbered = ROW_COUNT;

  UPDATE webhook_queues q SET due_at = clock_timestamp()
  FROM webhooks w WHERE w.id = q.webhook_id AND w.enabled AND q.webhook_id = ANY (v_queues) AND q.due_at IS NULL;

  DELETE FROM unnumbered_events u
  USING unnest(v_done_organizations, v_done_events) AS d (organization_id, outbox_id)
  WHERE u.organization_id = d.organization_id AND u.outbox_id = d.outbox_id;

  UPDATE event_queues q SET last_sequence = coalesce(e.sequence_after, q.last_sequence),
    partial_event = e.partial_event, partial_webhook = e.partial_webhook
  FROM unnest(v_organizations, v_sequences_after, v_partial_events, v_partial_webhooks)
    AS e (organization_id, sequence_after, partial_event, partial_webhook)
  WHERE q.organization_id = e.organization_id;

  RETURN jsonb_build_object(
    'numbered', v_numbered,
    'webhooks', (
      SELECT coalesce(jsonb_object_agg(q.webhook_id, i.id), '{}') FROM webhook_queues q
      LEFT JOIN actor_leases l ON l.kind = 'webhook' AND l.id = q.webhook_id
      LEFT JOIN live_instances i ON i.id = l.instance_id AND i.epoch = l.instance_epoch
      WHERE q.webhook_id = ANY (v_queues) AND (i.id IS NOT NULL OR q.due_at <= clock_timestamp())),
    'last', CASE WHEN cardinality(v_waiting) >= p_most_organizations THEN to_jsonb(v_waiting[p_most_organizations])
      ELSE 'null'::jsonb END,
    'is_more', v_is_more OR v_unwanted > 0);
END
$$;
--> statement-breakpoint
-- What owners of webhooks write, of many webhooks in one statement and one commit. Members of p_batch:
--   instance, epoch   who writes
--   leases            {w: webhook, e: epoch}: everything else concerns webhooks that are named here
--   attempts          {w, o: outbox id, n: attempts before it, s: status now, a: the attempt as it is
--                     listed, d: milliseconds until the next one}
--   disabled          {w, v: version of the webhook that failed}
--   rested            webhooks whose due time is to be set
--   numbered          webhooks of the previous version's owners that ask for their events to be numbered;
--                     limit goes with it
-- Returns {lost: webhooks whose lease has passed on, of which nothing was written; numbered: {webhook: count}}.
-- What is already written is passed over, so that a batch of unknown outcome can be written again.
CREATE OR REPLACE FUNCTION commit_deliveries(p_batch jsonb) RETURNS jsonb
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

  IF p_batch ? 'numbered' THEN
    PERFORM number_events(p_batch->>'instance', (p_batch->>'epoch')::bigint, '', 64, 2048);
    SELECT jsonb_object_agg(w.id, CASE WHEN EXISTS (
        SELECT 1 FROM unnumbered_events u WHERE u.organization_id = w.organization_id)
      THEN (p_batch->>'limit')::integer ELSE 0 END) INTO v_numbered
    FROM jsonb_array_elements_text(p_batch->'numbered') AS n (id) JOIN webhooks w ON w.id = n.id
    WHERE w.id = ANY (v_held);
  END IF;

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
    -- In the order of ids, as everybody who locks several of them.
    PERFORM 1 FROM webhook_queues q
    WHERE q.webhook_id = ANY (v_held)
      AND q.webhook_id IN (SELECT jsonb_array_elements_text(p_batch->'rested'))
    ORDER BY q.webhook_id FOR NO KEY UPDATE;
    UPDATE webhook_queues q SET due_at = webhook_due_at(q.webhook_id)
    WHERE q.webhook_id = ANY (v_held)
      AND q.webhook_id IN (SELECT jsonb_array_elements_text(p_batch->'rested'));
  END IF;
  RETURN jsonb_build_object('lost', to_jsonb(v_lost), 'numbered', coalesce(v_numbered, '{}'));
END
$$;
--> statement-breakpoint
DROP FUNCTION number_deliveries(text[], text[], integer);
