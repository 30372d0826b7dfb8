CREATE TABLE "background_responses" (
	"id" text PRIMARY KEY NOT NULL,
	"organization_id" text NOT NULL,
	"state" text DEFAULT 'queued' NOT NULL,
	"last_sequence" integer DEFAULT -1 NOT NULL,
	"is_cancelling" boolean DEFAULT false NOT NULL,
	"instance_id" text NOT NULL,
	"epoch" bigint NOT NULL
);
--> statement-breakpoint
ALTER TABLE "background_responses" ADD CONSTRAINT "background_responses_id_responses_id_fk" FOREIGN KEY ("id") REFERENCES "public"."responses"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "background_responses_running" ON "background_responses" USING btree ("organization_id") WHERE state IN ('queued', 'in_progress');