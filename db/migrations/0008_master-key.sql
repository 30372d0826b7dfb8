CREATE TABLE "master_key" (
	"is_only" boolean PRIMARY KEY DEFAULT true NOT NULL,
	"salt" "bytea" NOT NULL,
	"key_id" text NOT NULL,
	"proof" "bytea" NOT NULL,
	"previous_key_id" text,
	"changed_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "master_key_is_only" CHECK ("master_key"."is_only")
);
--> statement-breakpoint
ALTER TABLE "instances" ADD COLUMN "master_key_ids" text[];