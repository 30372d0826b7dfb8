CREATE TABLE "answer_steps" (
	"key_id" text NOT NULL,
	"idempotency_key" text NOT NULL,
	"body_hash" text NOT NULL,
	"request_id" text NOT NULL,
	"is_paid" boolean DEFAULT false NOT NULL,
	"sealed" "bytea" NOT NULL,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "answer_steps_key_id_idempotency_key_pk" PRIMARY KEY("key_id","idempotency_key")
);
--> statement-breakpoint
CREATE INDEX "answer_steps_age" ON "answer_steps" USING btree ("created_at");
