CREATE TABLE "response_contents" (
	"response_id" text NOT NULL,
	"part" text NOT NULL,
	"sealed" "bytea" NOT NULL,
	CONSTRAINT "response_contents_response_id_part_pk" PRIMARY KEY("response_id","part")
);
--> statement-breakpoint
CREATE TABLE "responses" (
	"id" text PRIMARY KEY NOT NULL,
	"organization_id" text NOT NULL,
	"previous_id" text,
	"chain_id" text NOT NULL,
	"own_bytes" integer DEFAULT 0 NOT NULL,
	"chain_bytes" bigint DEFAULT 0 NOT NULL,
	"is_kept" boolean DEFAULT false NOT NULL,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	"remove_after" timestamp with time zone NOT NULL
);
--> statement-breakpoint
ALTER TABLE "response_contents" ADD CONSTRAINT "response_contents_response_id_responses_id_fk" FOREIGN KEY ("response_id") REFERENCES "public"."responses"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "responses" ADD CONSTRAINT "responses_organization_id_organizations_id_fk" FOREIGN KEY ("organization_id") REFERENCES "public"."organizations"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "responses_chain" ON "responses" USING btree ("chain_id","created_at");--> statement-breakpoint
CREATE INDEX "responses_removal" ON "responses" USING btree ("remove_after");