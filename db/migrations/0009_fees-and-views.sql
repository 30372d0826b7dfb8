ALTER TABLE "dashboard_sessions" ADD COLUMN "viewed_organization_id" text;--> statement-breakpoint
ALTER TABLE "attempts" ADD COLUMN "fee_nano" bigint;--> statement-breakpoint
ALTER TABLE "transactions" ADD COLUMN "fee_nano" bigint;