ALTER TABLE "failed_requests" ADD COLUMN "queue_ms" integer;--> statement-breakpoint
ALTER TABLE "failed_requests" ADD COLUMN "routing" jsonb;