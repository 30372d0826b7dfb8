CREATE TABLE "answer_caches" (
	"organization_id" text PRIMARY KEY NOT NULL,
	"generation" bigint DEFAULT 0 NOT NULL,
	"entries" integer DEFAULT 0 NOT NULL,
	"bytes" bigint DEFAULT 0 NOT NULL
);
--> statement-breakpoint
CREATE TABLE "answer_flights" (
	"organization_id" text NOT NULL,
	"key_hash" text NOT NULL,
	"request_id" text NOT NULL,
	"lease_until" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "answer_flights_organization_id_key_hash_pk" PRIMARY KEY("organization_id","key_hash")
);
--> statement-breakpoint
CREATE TABLE "cached_answers" (
	"organization_id" text NOT NULL,
	"key_hash" text NOT NULL,
	"model" text NOT NULL,
	"provider" text NOT NULL,
	"cost_nano" bigint NOT NULL,
	"usage" jsonb NOT NULL,
	"dropped" text,
	"bytes" integer NOT NULL,
	"sealed" "bytea" NOT NULL,
	"expires_at" timestamp with time zone NOT NULL,
	"used_at" timestamp with time zone NOT NULL,
	CONSTRAINT "cached_answers_organization_id_key_hash_pk" PRIMARY KEY("organization_id","key_hash")
);
--> statement-breakpoint
ALTER TABLE "answer_caches" ADD CONSTRAINT "answer_caches_organization_id_organizations_id_fk" FOREIGN KEY ("organization_id") REFERENCES "public"."organizations"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "answer_flights" ADD CONSTRAINT "answer_flights_organization_id_organizations_id_fk" FOREIGN KEY ("organization_id") REFERENCES "public"."organizations"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "cached_answers" ADD CONSTRAINT "cached_answers_organization_id_organizations_id_fk" FOREIGN KEY ("organization_id") REFERENCES "public"."organizations"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "cached_answers_use" ON "cached_answers" USING btree ("organization_id","used_at");--> statement-breakpoint
CREATE INDEX "cached_answers_expiry" ON "cached_answers" USING btree ("expires_at");