CREATE TABLE "provider_batch_lines" (
	"batch_id" text NOT NULL,
	"line" integer NOT NULL,
	"provider_batch" text,
	"request_id" text,
	"fee_basis_points" integer,
	CONSTRAINT "provider_batch_lines_batch_id_line_pk" PRIMARY KEY("batch_id","line")
);
--> statement-breakpoint
CREATE TABLE "provider_batches" (
	"id" text PRIMARY KEY NOT NULL,
	"batch_id" text NOT NULL,
	"provider_id" text NOT NULL,
	"provider_key" text,
	"model" text NOT NULL,
	"provider_model" text NOT NULL,
	"kind" text NOT NULL,
	"terms" text NOT NULL,
	"state" text NOT NULL,
	"requests" integer NOT NULL,
	"provider_batch" text,
	"ordered_at" timestamp with time zone,
	"is_cancelled" boolean DEFAULT false NOT NULL
);
--> statement-breakpoint
ALTER TABLE "instances" ADD COLUMN "knows_provider_batches" boolean DEFAULT false NOT NULL;--> statement-breakpoint
CREATE INDEX "provider_batch_lines_provider_batch" ON "provider_batch_lines" USING btree ("provider_batch");--> statement-breakpoint
CREATE INDEX "provider_batches_batch" ON "provider_batches" USING btree ("batch_id");--> statement-breakpoint
CREATE INDEX "provider_batches_provider" ON "provider_batches" USING btree ("provider_id");
--> statement-breakpoint
-- As before, but that an instance that does not know of provider_batches is given no batch that has some: it would
-- call again what is at a provider already.
CREATE OR REPLACE FUNCTION claim_leases(
  p_kind text, p_ids text[], p_instance text, p_instance_epoch bigint, p_judges boolean
)
RETURNS TABLE (id text, epoch bigint)
LANGUAGE plpgsql AS $$
DECLARE
  v_locked text[];
  v_knows boolean;
BEGIN
  -- A key share: the reaper's FOR UPDATE waits for it, and it for that, but no heartbeat does.
  SELECT i.knows_provider_batches INTO v_knows FROM instances i
  WHERE i.id = p_instance AND i.epoch = p_instance_epoch AND i.alive FOR KEY SHARE;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  INSERT INTO actor_leases (kind, id, epoch)
  SELECT DISTINCT p_kind, wanted, 0 FROM unnest(p_ids) AS wanted ORDER BY wanted
  ON CONFLICT ON CONSTRAINT actor_leases_kind_id_pk DO NOTHING;
  v_locked := ARRAY(
    SELECT l.id FROM actor_leases l WHERE l.kind = p_kind AND l.id = ANY (p_ids)
    ORDER BY l.id FOR UPDATE SKIP LOCKED);
  -- A statement of its own, whose snapshot is younger than the locks.
  RETURN QUERY
  UPDATE actor_leases l
  SET instance_id = p_instance, instance_epoch = p_instance_epoch, epoch = l.epoch + 1
  WHERE l.kind = p_kind AND l.id = ANY (v_locked)
    AND (l.instance_id = p_instance OR NOT EXISTS (
      SELECT 1 FROM instances i WHERE i.id = l.instance_id AND i.epoch = l.instance_epoch AND i.alive
        AND (NOT p_judges OR i.heartbeat_at > clock_timestamp() - instance_lease())))
    AND (v_knows OR p_kind <> 'batch' OR NOT EXISTS (
      SELECT 1 FROM provider_batches p WHERE p.batch_id = l.id))
  RETURNING l.id, l.epoch;
END
$$;
