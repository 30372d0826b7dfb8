CREATE TABLE "payment_refunds" (
	"id" text PRIMARY KEY NOT NULL,
	"organization_id" text NOT NULL,
	"intent_id" text NOT NULL,
	"order_id" text NOT NULL,
	"asked_nano" bigint,
	"amount_nano" bigint NOT NULL,
	"state" text DEFAULT 'ordered' NOT NULL,
	"transaction_id" text,
	"returned_transaction_id" text,
	"reference" text,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	"busy_until" timestamp with time zone NOT NULL,
	"looks" integer DEFAULT 0 NOT NULL,
	"next_look_at" timestamp with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "payment_reversals" (
	"id" text PRIMARY KEY NOT NULL,
	"organization_id" text NOT NULL,
	"intent_id" text NOT NULL,
	"kind" text NOT NULL,
	"amount_nano" bigint NOT NULL,
	"state" text NOT NULL,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	"is_settled" boolean DEFAULT false NOT NULL,
	"looks" integer DEFAULT 0 NOT NULL,
	"next_look_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
--> statement-breakpoint
ALTER TABLE "organizations" ADD COLUMN "suspended_reason" text;--> statement-breakpoint
ALTER TABLE "payment_refunds" ADD CONSTRAINT "payment_refunds_organization_id_organizations_id_fk" FOREIGN KEY ("organization_id") REFERENCES "public"."organizations"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "payment_refunds" ADD CONSTRAINT "payment_refunds_intent_id_payment_intents_id_fk" FOREIGN KEY ("intent_id") REFERENCES "public"."payment_intents"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "payment_reversals" ADD CONSTRAINT "payment_reversals_organization_id_organizations_id_fk" FOREIGN KEY ("organization_id") REFERENCES "public"."organizations"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "payment_reversals" ADD CONSTRAINT "payment_reversals_intent_id_payment_intents_id_fk" FOREIGN KEY ("intent_id") REFERENCES "public"."payment_intents"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "payment_refunds_of_intent" ON "payment_refunds" USING btree ("intent_id");--> statement-breakpoint
CREATE INDEX "payment_refunds_open" ON "payment_refunds" USING btree ("next_look_at") WHERE state IN ('ordered', 'pending');--> statement-breakpoint
CREATE INDEX "payment_reversals_of_intent" ON "payment_reversals" USING btree ("intent_id");--> statement-breakpoint
CREATE INDEX "payment_reversals_unsettled" ON "payment_reversals" USING btree ("next_look_at") WHERE NOT is_settled;