CREATE TABLE "failed_requests" (
	"id" text NOT NULL,
	"organization_id" text NOT NULL,
	"key_id" text NOT NULL,
	"position" bigint NOT NULL,
	"model" text,
	"provider" text,
	"status" integer NOT NULL,
	"error_code" text NOT NULL,
	"user_name" text,
	"session_id" text,
	"latency_ms" integer NOT NULL,
	"is_charged" boolean NOT NULL,
	"created_at" timestamp (3) with time zone NOT NULL,
	CONSTRAINT "failed_requests_id_pk" PRIMARY KEY("id")
);
--> statement-breakpoint
CREATE INDEX "failed_requests_list" ON "failed_requests" USING btree ("organization_id","position","created_at","id") WHERE NOT is_charged;--> statement-breakpoint
CREATE INDEX "failed_requests_of_key" ON "failed_requests" USING btree ("organization_id","key_id","position","created_at","id") WHERE NOT is_charged;--> statement-breakpoint
CREATE INDEX "failed_requests_removal" ON "failed_requests" USING btree ("created_at");