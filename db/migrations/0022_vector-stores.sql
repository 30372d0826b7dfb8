CREATE TABLE "vector_store_batches" (
	"id" text PRIMARY KEY NOT NULL,
	"organization_id" text NOT NULL,
	"vector_store_id" text NOT NULL,
	"created_at" timestamp with time zone NOT NULL,
	"cancelled_at" timestamp with time zone
);
--> statement-breakpoint
CREATE TABLE "vector_store_chunks" (
	"file" bigint NOT NULL,
	"position" integer NOT NULL,
	"text" text NOT NULL,
	"words" "tsvector" NOT NULL,
	"length" integer NOT NULL,
	CONSTRAINT "vector_store_chunks_file_position_pk" PRIMARY KEY("file","position")
);
--> statement-breakpoint
CREATE TABLE "vector_store_files" (
	"id" text PRIMARY KEY NOT NULL,
	"number" bigint GENERATED ALWAYS AS IDENTITY (sequence name "vector_store_files_number_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"organization_id" text NOT NULL,
	"vector_store_id" text NOT NULL,
	"file_id" text NOT NULL,
	"batch_id" text,
	"status" text NOT NULL,
	"error_code" text,
	"error_message" text,
	"attributes" jsonb NOT NULL,
	"max_chunk_tokens" integer NOT NULL,
	"overlap_tokens" integer NOT NULL,
	"chunks" integer DEFAULT 0 NOT NULL,
	"usage_bytes" bigint DEFAULT 0 NOT NULL,
	"due_at" timestamp with time zone,
	"attempts" integer DEFAULT 0 NOT NULL,
	"created_at" timestamp with time zone NOT NULL,
	CONSTRAINT "vector_store_files_number_unique" UNIQUE("number")
);
--> statement-breakpoint
CREATE TABLE "vector_stores" (
	"id" text PRIMARY KEY NOT NULL,
	"number" bigint GENERATED ALWAYS AS IDENTITY (sequence name "vector_stores_number_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"organization_id" text NOT NULL,
	"name" text,
	"description" text,
	"metadata" jsonb,
	"expires_after_days" integer,
	"created_at" timestamp with time zone NOT NULL,
	"last_active_at" timestamp with time zone NOT NULL,
	"expires_at" timestamp with time zone,
	"cleared_at" timestamp with time zone
);
--> statement-breakpoint
ALTER TABLE "vector_stores" ADD CONSTRAINT "vector_stores_organization_id_organizations_id_fk" FOREIGN KEY ("organization_id") REFERENCES "public"."organizations"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "vector_store_chunks_words" ON "vector_store_chunks" USING gin ("words") WITH (fastupdate=false);--> statement-breakpoint
CREATE UNIQUE INDEX "vector_store_files_present" ON "vector_store_files" USING btree ("vector_store_id","file_id") WHERE status <> 'removed';--> statement-breakpoint
CREATE INDEX "vector_store_files_listing" ON "vector_store_files" USING btree ("vector_store_id","id" COLLATE "C");--> statement-breakpoint
CREATE INDEX "vector_store_files_file" ON "vector_store_files" USING btree ("file_id");--> statement-breakpoint
CREATE INDEX "vector_store_files_organization" ON "vector_store_files" USING btree ("organization_id");--> statement-breakpoint
CREATE INDEX "vector_store_files_batch" ON "vector_store_files" USING btree ("batch_id") WHERE batch_id IS NOT NULL;--> statement-breakpoint
CREATE INDEX "vector_store_files_due" ON "vector_store_files" USING btree ("organization_id","due_at") WHERE due_at IS NOT NULL;--> statement-breakpoint
CREATE INDEX "vector_stores_listing" ON "vector_stores" USING btree ("organization_id","id" COLLATE "C");--> statement-breakpoint
CREATE INDEX "vector_stores_expiry" ON "vector_stores" USING btree ("expires_at") WHERE expires_at IS NOT NULL AND cleared_at IS NULL;--> statement-breakpoint
-- Texts and words lie apart from the rows that a search counts.
ALTER TABLE "vector_store_chunks" SET (toast_tuple_target = 128);
