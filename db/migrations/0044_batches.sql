CREATE TABLE "batch_contents" (
	"batch_id" text NOT NULL,
	"part" text NOT NULL,
	"sealed" "bytea" NOT NULL,
	CONSTRAINT "batch_contents_batch_id_part_pk" PRIMARY KEY("batch_id","part")
);
--> statement-breakpoint
CREATE TABLE "batch_lines" (
	"batch_id" text NOT NULL,
	"line" integer NOT NULL,
	"is_failed" boolean NOT NULL,
	CONSTRAINT "batch_lines_batch_id_line_pk" PRIMARY KEY("batch_id","line")
);
--> statement-breakpoint
CREATE TABLE "batches" (
	"id" text PRIMARY KEY NOT NULL,
	"organization_id" text NOT NULL,
	"key_id" text NOT NULL,
	"endpoint" text NOT NULL,
	"input_file" text NOT NULL,
	"status" text NOT NULL,
	"ends_as" text,
	"metadata" jsonb,
	"faults" jsonb,
	"total" integer DEFAULT 0 NOT NULL,
	"completed" integer DEFAULT 0 NOT NULL,
	"failed" integer DEFAULT 0 NOT NULL,
	"output_file" text,
	"error_file" text,
	"created_at" timestamp with time zone NOT NULL,
	"in_progress_at" timestamp with time zone,
	"finalizing_at" timestamp with time zone,
	"ended_at" timestamp with time zone,
	"cancelling_at" timestamp with time zone,
	"expires_at" timestamp with time zone NOT NULL,
	"due_at" timestamp with time zone,
	"attempts" integer DEFAULT 0 NOT NULL
);
--> statement-breakpoint
ALTER TABLE "batches" ADD CONSTRAINT "batches_organization_id_organizations_id_fk" FOREIGN KEY ("organization_id") REFERENCES "public"."organizations"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "batches_listing" ON "batches" USING btree ("organization_id","id" COLLATE "C");--> statement-breakpoint
CREATE INDEX "batches_due" ON "batches" USING btree ("due_at") WHERE due_at IS NOT NULL;