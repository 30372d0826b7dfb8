CREATE TABLE "plan_subscriptions" (
	"organization_id" text PRIMARY KEY NOT NULL,
	"id" text NOT NULL,
	"processor" text NOT NULL,
	"plan" text NOT NULL,
	"next_plan" text,
	"reference" text,
	"customer" text,
	"method" text NOT NULL,
	"state" text DEFAULT 'pending' NOT NULL,
	"invoice_url" text,
	"period_start" timestamp with time zone,
	"period_end" timestamp with time zone,
	"version" bigint DEFAULT 0 NOT NULL,
	"next_look_at" timestamp with time zone,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
--> statement-breakpoint
ALTER TABLE "plan_subscriptions" ADD CONSTRAINT "plan_subscriptions_organization_id_organizations_id_fk" FOREIGN KEY ("organization_id") REFERENCES "public"."organizations"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "plan_subscriptions_due" ON "plan_subscriptions" USING btree ("next_look_at") WHERE next_look_at IS NOT NULL;--> statement-breakpoint
CREATE INDEX "plan_subscriptions_reference" ON "plan_subscriptions" USING btree ("processor","reference");