CREATE TABLE "provider_health" (
	"provider_id" text PRIMARY KEY NOT NULL,
	"is_healthy" boolean NOT NULL,
	"changed_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
