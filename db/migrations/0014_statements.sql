CREATE TABLE "statement_cursors" (
	"organization_id" text PRIMARY KEY NOT NULL,
	"sequence" bigint DEFAULT 0 NOT NULL
);
--> statement-breakpoint
CREATE TABLE "statement_sums" (
	"organization_id" text NOT NULL,
	"kind" text NOT NULL,
	"month" date NOT NULL,
	"model" text NOT NULL,
	"transactions" bigint NOT NULL,
	"amount_nano" bigint NOT NULL,
	"fee_nano" bigint NOT NULL,
	CONSTRAINT "statement_sums_pk" PRIMARY KEY("organization_id","kind","month","model")
);
--> statement-breakpoint
CREATE INDEX "credit_commands_transaction" ON "credit_commands" USING btree ("transaction_id") WHERE transaction_id IS NOT NULL;--> statement-breakpoint
CREATE INDEX "payment_refunds_order" ON "payment_refunds" USING btree ("order_id");--> statement-breakpoint
CREATE INDEX "payment_refunds_returned" ON "payment_refunds" USING btree ("returned_transaction_id") WHERE returned_transaction_id IS NOT NULL;