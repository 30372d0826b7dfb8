ALTER TABLE "cached_answers" ADD COLUMN "headers" jsonb DEFAULT '{}'::jsonb NOT NULL;--> statement-breakpoint
ALTER TABLE "cached_answers" DROP COLUMN "dropped";