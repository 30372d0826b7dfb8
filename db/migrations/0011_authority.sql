CREATE TABLE "charge_refunds" (
	"transaction_id" text PRIMARY KEY NOT NULL,
	"organization_id" text NOT NULL,
	"refunded_nano" bigint NOT NULL
);
--> statement-breakpoint
CREATE TABLE "operator_keys" (
	"id" text PRIMARY KEY NOT NULL,
	"name" text NOT NULL,
	"key_hash" text NOT NULL,
	"key_prefix" text NOT NULL,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	"revoked_at" timestamp with time zone
);
--> statement-breakpoint
ALTER TABLE "credit_commands" ADD COLUMN "operator_key_id" text;--> statement-breakpoint
ALTER TABLE "credit_commands" ADD COLUMN "idempotency_key" text;--> statement-breakpoint
ALTER TABLE "credit_commands" ADD COLUMN "body_hash" text;--> statement-breakpoint
ALTER TABLE "organizations" ADD COLUMN "fee_basis_points" integer;--> statement-breakpoint
ALTER TABLE "organizations" ADD COLUMN "file_quota_bytes" bigint;--> statement-breakpoint
ALTER TABLE "organizations" ADD COLUMN "max_keys" integer;--> statement-breakpoint
ALTER TABLE "organizations" ADD COLUMN "max_webhooks" integer;--> statement-breakpoint
ALTER TABLE "organizations" ADD COLUMN "key_count" integer DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE "organizations" ADD COLUMN "suspended_at" timestamp with time zone;--> statement-breakpoint
CREATE UNIQUE INDEX "operator_keys_hash" ON "operator_keys" USING btree ("key_hash");--> statement-breakpoint
CREATE UNIQUE INDEX "credit_commands_idempotency" ON "credit_commands" USING btree ("operator_key_id","idempotency_key") WHERE idempotency_key IS NOT NULL;--> statement-breakpoint
CREATE INDEX "organizations_suspended" ON "organizations" USING btree ("id") WHERE suspended_at IS NOT NULL;
--> statement-breakpoint
-- Counts an organization's keys that are not deleted, under the lock of its row: so a limit on their number
-- is exact over all instances and costs the same with 100,000 keys as with one. A trigger, because instances
-- of the previous version create and delete keys too while they are replaced.
CREATE FUNCTION count_api_keys() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
  v_before integer := CASE WHEN TG_OP <> 'INSERT' AND OLD.deleted_at IS NULL THEN 1 ELSE 0 END;
  v_after integer := CASE WHEN TG_OP <> 'DELETE' AND NEW.deleted_at IS NULL THEN 1 ELSE 0 END;
BEGIN
  IF v_before <> v_after THEN
    UPDATE organizations SET key_count = key_count + v_after - v_before
    WHERE id = CASE WHEN TG_OP = 'DELETE' THEN OLD.organization_id ELSE NEW.organization_id END;
  END IF;
  RETURN NULL;
END
$$;--> statement-breakpoint
CREATE TRIGGER count_api_keys AFTER INSERT OR DELETE OR UPDATE OF deleted_at ON api_keys
FOR EACH ROW EXECUTE FUNCTION count_api_keys();--> statement-breakpoint
-- The trigger's lock keeps writers of api_keys out until the end of this transaction, so none is missed.
UPDATE organizations o SET key_count = k.count
FROM (SELECT organization_id, count(*) AS count FROM api_keys WHERE deleted_at IS NULL
      GROUP BY organization_id) k
WHERE k.organization_id = o.id;--> statement-breakpoint
-- A key that holds every scope of the previous version holds all scopes, also those that come later: `*`
-- says so. The names stay beside it, because instances of the previous version look for those.
UPDATE api_keys SET scopes = scopes
  || ARRAY['usage:read', 'presets:manage', 'guardrails:manage', 'provider_keys:manage', 'cache:manage', '*']
WHERE deleted_at IS NULL AND NOT scopes @> ARRAY['*'] AND scopes @> ARRAY[
  'chat:completions', 'responses', 'embeddings', 'images', 'audio', 'files:read', 'files:write', 'fine_tuning',
  'models:read', 'models:write', 'keys:manage', 'billing:read', 'billing:write', 'webhooks:manage'];
