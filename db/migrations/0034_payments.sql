CREATE TABLE "payment_customers" (
	"organization_id" text NOT NULL,
	"processor" text NOT NULL,
	"reference" text NOT NULL,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "payment_customers_organization_id_processor_pk" PRIMARY KEY("organization_id","processor")
);
--> statement-breakpoint
CREATE TABLE "payment_intents" (
	"id" text PRIMARY KEY NOT NULL,
	"organization_id" text NOT NULL,
	"key_id" text,
	"idempotency_key" text,
	"body_hash" text,
	"purpose" text NOT NULL,
	"amount_nano" bigint NOT NULL,
	"description" text NOT NULL,
	"processor" text NOT NULL,
	"customer" text,
	"method_id" text,
	"method" text NOT NULL,
	"return_url" text,
	"state" text DEFAULT 'pending' NOT NULL,
	"reference" text,
	"error_reason" text,
	"error_message" text,
	"transaction_id" text,
	"receipt_url" text,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	"settled_at" timestamp with time zone,
	"instance_id" text NOT NULL,
	"busy_until" timestamp with time zone NOT NULL,
	"looks" integer DEFAULT 0 NOT NULL,
	"next_look_at" timestamp with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "payment_methods" (
	"id" text PRIMARY KEY NOT NULL,
	"organization_id" text NOT NULL,
	"processor" text NOT NULL,
	"state" text NOT NULL,
	"setup_reference" text,
	"reference" text,
	"type" text,
	"brand" text,
	"last4" text,
	"is_default" boolean DEFAULT false NOT NULL,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
--> statement-breakpoint
ALTER TABLE "payment_customers" ADD CONSTRAINT "payment_customers_organization_id_organizations_id_fk" FOREIGN KEY ("organization_id") REFERENCES "public"."organizations"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "payment_intents" ADD CONSTRAINT "payment_intents_organization_id_organizations_id_fk" FOREIGN KEY ("organization_id") REFERENCES "public"."organizations"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "payment_methods" ADD CONSTRAINT "payment_methods_organization_id_organizations_id_fk" FOREIGN KEY ("organization_id") REFERENCES "public"."organizations"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE UNIQUE INDEX "payment_intents_idempotency" ON "payment_intents" USING btree ("key_id","idempotency_key") WHERE idempotency_key IS NOT NULL;--> statement-breakpoint
CREATE INDEX "payment_intents_open" ON "payment_intents" USING btree ("next_look_at") WHERE state IN ('pending', 'requires_action');--> statement-breakpoint
CREATE INDEX "payment_intents_of_organization" ON "payment_intents" USING btree ("organization_id","created_at");--> statement-breakpoint
CREATE UNIQUE INDEX "payment_intents_transaction" ON "payment_intents" USING btree ("transaction_id") WHERE transaction_id IS NOT NULL;--> statement-breakpoint
CREATE INDEX "payment_intents_reference" ON "payment_intents" USING btree ("processor","reference") WHERE reference IS NOT NULL;--> statement-breakpoint
CREATE INDEX "payment_methods_listing" ON "payment_methods" USING btree ("organization_id","created_at");--> statement-breakpoint
CREATE UNIQUE INDEX "payment_methods_default" ON "payment_methods" USING btree ("organization_id","processor") WHERE is_default;--> statement-breakpoint
CREATE UNIQUE INDEX "payment_methods_reference" ON "payment_methods" USING btree ("processor","reference","organization_id") WHERE state = 'active';--> statement-breakpoint
CREATE INDEX "payment_methods_pending" ON "payment_methods" USING btree ("created_at") WHERE state = 'pending';