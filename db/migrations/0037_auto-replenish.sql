CREATE TABLE "auto_replenish" (
	"organization_id" text PRIMARY KEY NOT NULL,
	"is_enabled" boolean DEFAULT false NOT NULL,
	"threshold_nano" bigint DEFAULT 0 NOT NULL,
	"amount_nano" bigint DEFAULT 0 NOT NULL,
	"method_id" text,
	"crossings" bigint DEFAULT 0 NOT NULL,
	"ordered_crossings" bigint DEFAULT 0 NOT NULL,
	"intent_id" text,
	"declines" integer DEFAULT 0 NOT NULL,
	"due_at" timestamp with time zone
);
--> statement-breakpoint
ALTER TABLE "accounts" ADD COLUMN "replenish_below_nano" bigint;--> statement-breakpoint
ALTER TABLE "auto_replenish" ADD CONSTRAINT "auto_replenish_organization_id_organizations_id_fk" FOREIGN KEY ("organization_id") REFERENCES "public"."organizations"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "auto_replenish_due" ON "auto_replenish" USING btree ("due_at") WHERE due_at IS NOT NULL;
--> statement-breakpoint
-- The balance has fallen below the threshold of the automatic top-up. As with credits.low, a trigger sees every
-- writer of the account, under the lock of its row, so each crossing orders once. What is under way or waits
-- after a decline keeps its time; after three declines nothing is ordered until the owner changes something.
CREATE FUNCTION order_replenishment() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  UPDATE auto_replenish SET crossings = crossings + 1, due_at = coalesce(due_at, clock_timestamp())
  WHERE organization_id = NEW.organization_id AND is_enabled AND declines < 3;
  IF FOUND THEN
    PERFORM pg_notify('gateway_changes', 'replenish ' || NEW.organization_id);
  END IF;
  RETURN NULL;
END
$$;--> statement-breakpoint
CREATE TRIGGER order_replenishment AFTER UPDATE OF credit_nano, posted_nano ON accounts
FOR EACH ROW WHEN (
  NEW.credit_nano - NEW.posted_nano < NEW.replenish_below_nano
  AND OLD.credit_nano - OLD.posted_nano >= OLD.replenish_below_nano
) EXECUTE FUNCTION order_replenishment();--> statement-breakpoint
-- Another default method may pay where the one before was declined.
CREATE FUNCTION resume_replenishment() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  UPDATE auto_replenish
  SET declines = 0, due_at = CASE WHEN intent_id IS NULL THEN clock_timestamp() ELSE due_at END
  WHERE organization_id = NEW.organization_id AND is_enabled AND method_id IS NULL AND declines > 0;
  IF FOUND THEN
    PERFORM pg_notify('gateway_changes', 'replenish ' || NEW.organization_id);
  END IF;
  RETURN NULL;
END
$$;--> statement-breakpoint
CREATE TRIGGER resume_replenishment AFTER INSERT OR UPDATE OF is_default ON payment_methods
FOR EACH ROW WHEN (NEW.is_default AND NEW.state = 'active') EXECUTE FUNCTION resume_replenishment();
