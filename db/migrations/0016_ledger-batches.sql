ALTER TABLE "attempts" ADD COLUMN "cached_prompt_tokens" bigint;--> statement-breakpoint
ALTER TABLE "attempts" ADD COLUMN "reasoning_tokens" bigint;--> statement-breakpoint
ALTER TABLE "attempts" ADD COLUMN "quantities" jsonb;--> statement-breakpoint
ALTER TABLE "attempts" ADD COLUMN "description" text;--> statement-breakpoint
ALTER TABLE "transactions" ADD COLUMN "quantities" jsonb;