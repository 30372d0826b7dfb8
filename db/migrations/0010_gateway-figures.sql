CREATE TABLE "circuit_openings" (
	"endpoint_id" text NOT NULL,
	"instance_id" text NOT NULL,
	"opened_at" timestamp with time zone NOT NULL,
	"provider_id" text NOT NULL,
	"last_open_at" timestamp with time zone NOT NULL,
	"openings" integer NOT NULL,
	"failure_kind" text,
	"failure_status" smallint,
	CONSTRAINT "circuit_openings_endpoint_id_instance_id_opened_at_pk" PRIMARY KEY("endpoint_id","instance_id","opened_at")
);
--> statement-breakpoint
CREATE TABLE "provider_key_failures" (
	"provider_id" text NOT NULL,
	"key_position" smallint NOT NULL,
	"endpoint_id" text NOT NULL,
	"failed_at" timestamp with time zone NOT NULL,
	"failure_kind" text NOT NULL,
	"failure_status" smallint,
	CONSTRAINT "provider_key_failures_provider_id_key_position_pk" PRIMARY KEY("provider_id","key_position")
);
--> statement-breakpoint
CREATE TABLE "usage_gateway" (
	"grain" text NOT NULL,
	"starts_at" timestamp with time zone NOT NULL,
	"model" text NOT NULL,
	"provider" text NOT NULL,
	"requests" bigint NOT NULL,
	"errors" bigint NOT NULL,
	"prompt_tokens" bigint NOT NULL,
	"completion_tokens" bigint NOT NULL,
	"cached_tokens" bigint NOT NULL,
	"reasoning_tokens" bigint NOT NULL,
	"images" bigint NOT NULL,
	"characters" bigint NOT NULL,
	"duration_ms" bigint NOT NULL,
	"search_units" bigint DEFAULT 0 NOT NULL,
	"cost_nano" bigint NOT NULL,
	"fee_nano" bigint DEFAULT 0 NOT NULL,
	"provider_cost_nano" bigint DEFAULT 0 NOT NULL,
	"quantities" jsonb,
	CONSTRAINT "usage_gateway_pk" PRIMARY KEY("grain","starts_at","model","provider")
);
--> statement-breakpoint
CREATE TABLE "usage_gateway_latencies" (
	"grain" text NOT NULL,
	"starts_at" timestamp with time zone NOT NULL,
	"model" text NOT NULL,
	"provider" text NOT NULL,
	"bucket" smallint NOT NULL,
	"requests" bigint NOT NULL,
	CONSTRAINT "usage_gateway_latencies_pk" PRIMARY KEY("grain","starts_at","model","provider","bucket")
);
--> statement-breakpoint
ALTER TABLE "instances" ADD COLUMN "version" text;--> statement-breakpoint
ALTER TABLE "instances" ADD COLUMN "draining_since" timestamp with time zone;--> statement-breakpoint
ALTER TABLE "usage_cursors" ADD COLUMN "gateway_since" timestamp with time zone DEFAULT 'infinity' NOT NULL;--> statement-breakpoint
ALTER TABLE "usage_rollups" ADD COLUMN "fee_nano" bigint DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE "usage_rollups" ADD COLUMN "provider_cost_nano" bigint DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE "usage_subjects" ADD COLUMN "fee_nano" bigint DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE "usage_subjects" ADD COLUMN "provider_cost_nano" bigint DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE "usage_totals" ADD COLUMN "fee_nano" bigint DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE "usage_totals" ADD COLUMN "provider_cost_nano" bigint DEFAULT 0 NOT NULL;--> statement-breakpoint
CREATE INDEX "circuit_openings_time" ON "circuit_openings" USING btree ("last_open_at");--> statement-breakpoint
CREATE INDEX "usage_cursors_outside_gateway" ON "usage_cursors" USING btree ("organization_id") WHERE "usage_cursors"."gateway_since" > '-infinity';--> statement-breakpoint
CREATE INDEX "usage_rollups_of_gateway" ON "usage_rollups" USING btree ("grain","starts_at") WHERE "usage_rollups"."grain" IN ('hour', 'day');--> statement-breakpoint
CREATE INDEX "usage_totals_of_gateway" ON "usage_totals" USING btree ("kind","starts_at") WHERE "usage_totals"."kind" IN ('hour', 'day');