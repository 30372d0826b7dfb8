CREATE TABLE "accounts" (
	"id" text PRIMARY KEY NOT NULL,
	"kind" text NOT NULL,
	"organization_id" text NOT NULL,
	"key_id" text,
	"period_start" date,
	"credit_nano" bigint DEFAULT 0 NOT NULL,
	"posted_nano" bigint DEFAULT 0 NOT NULL,
	"held_nano" bigint DEFAULT 0 NOT NULL,
	"sequence" bigint DEFAULT 0 NOT NULL,
	"budget_events" integer DEFAULT 0 NOT NULL,
	"last_used_at" timestamp with time zone
);
--> statement-breakpoint
CREATE TABLE "actor_leases" (
	"kind" text NOT NULL,
	"id" text NOT NULL,
	"instance_id" text,
	"instance_epoch" bigint,
	"epoch" bigint NOT NULL,
	CONSTRAINT "actor_leases_kind_id_pk" PRIMARY KEY("kind","id")
);
--> statement-breakpoint
CREATE TABLE "api_keys" (
	"id" text PRIMARY KEY NOT NULL,
	"organization_id" text NOT NULL,
	"kind" text NOT NULL,
	"name" text NOT NULL,
	"key_hash" text NOT NULL,
	"key_prefix" text NOT NULL,
	"scopes" text[] NOT NULL,
	"rate_limit_rpm" integer,
	"daily_budget_nano" bigint,
	"monthly_budget_nano" bigint,
	"allowed_models" text[],
	"expires_at" timestamp with time zone,
	"is_active" boolean DEFAULT true NOT NULL,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL,
	"deleted_at" timestamp with time zone,
	"last_used_at" timestamp with time zone,
	"version" bigint DEFAULT 1 NOT NULL
);
--> statement-breakpoint
CREATE TABLE "attempts" (
	"request_id" text PRIMARY KEY NOT NULL,
	"instance_id" text NOT NULL,
	"epoch" bigint NOT NULL,
	"organization_id" text NOT NULL,
	"key_id" text NOT NULL,
	"org_account" text NOT NULL,
	"day_account" text NOT NULL,
	"month_account" text NOT NULL,
	"hold_nano" bigint NOT NULL,
	"charge_nano" bigint NOT NULL,
	"model" text NOT NULL,
	"provider" text NOT NULL,
	"prompt_tokens" bigint NOT NULL,
	"completion_tokens" bigint NOT NULL,
	"estimated" boolean NOT NULL,
	"latency_ms" integer NOT NULL,
	"details" jsonb,
	"started_at" timestamp with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "catalogue_search" (
	"model_id" text PRIMARY KEY NOT NULL,
	"title" text NOT NULL,
	"origin" text NOT NULL,
	"description" text NOT NULL,
	"document" "tsvector" GENERATED ALWAYS AS (setweight(to_tsvector('simple', title), 'A') || setweight(to_tsvector('simple', origin), 'B') || setweight(to_tsvector('simple', description) || to_tsvector('english', description), 'C')) STORED
);
--> statement-breakpoint
CREATE TABLE "changes" (
	"id" bigserial PRIMARY KEY NOT NULL,
	"kind" text NOT NULL,
	"object_id" text NOT NULL,
	"changed_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
--> statement-breakpoint
CREATE TABLE "commit_marks" (
	"id" text PRIMARY KEY NOT NULL,
	"marked_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
--> statement-breakpoint
CREATE TABLE "credit_commands" (
	"id" text PRIMARY KEY NOT NULL,
	"organization_id" text NOT NULL,
	"amount_nano" bigint NOT NULL,
	"description" text NOT NULL,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	"done_at" timestamp with time zone,
	"transaction_id" text,
	"refused_code" text
);
--> statement-breakpoint
CREATE TABLE "deliveries" (
	"webhook_id" text NOT NULL,
	"outbox_id" bigint NOT NULL,
	"sequence" bigint NOT NULL,
	"event_id" text NOT NULL,
	"event_type" text NOT NULL,
	"status" text DEFAULT 'pending' NOT NULL,
	"attempt_count" integer DEFAULT 0 NOT NULL,
	"attempts" jsonb DEFAULT '[]'::jsonb NOT NULL,
	"next_attempt_at" timestamp with time zone,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	"finished_at" timestamp with time zone,
	CONSTRAINT "deliveries_webhook_id_outbox_id_pk" PRIMARY KEY("webhook_id","outbox_id")
);
--> statement-breakpoint
CREATE TABLE "file_removals" (
	"storage_key" text PRIMARY KEY NOT NULL,
	"due_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	"attempts" integer DEFAULT 0 NOT NULL
);
--> statement-breakpoint
CREATE TABLE "file_uploads" (
	"storage_key" text PRIMARY KEY NOT NULL,
	"organization_id" text NOT NULL,
	"reserved_bytes" bigint DEFAULT 0 NOT NULL,
	"instance_id" text NOT NULL,
	"epoch" bigint NOT NULL,
	"renewed_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
--> statement-breakpoint
CREATE TABLE "file_usage" (
	"organization_id" text PRIMARY KEY NOT NULL,
	"used_bytes" bigint DEFAULT 0 NOT NULL,
	"reserved_bytes" bigint DEFAULT 0 NOT NULL
);
--> statement-breakpoint
CREATE TABLE "file_uses" (
	"storage_key" text NOT NULL,
	"holder" text NOT NULL,
	"file_id" text NOT NULL,
	"organization_id" text NOT NULL,
	"bytes" bigint NOT NULL,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "file_uses_storage_key_holder_pk" PRIMARY KEY("storage_key","holder")
);
--> statement-breakpoint
CREATE TABLE "files" (
	"id" text PRIMARY KEY NOT NULL,
	"organization_id" text NOT NULL,
	"filename" text NOT NULL,
	"purpose" text NOT NULL,
	"content_type" text NOT NULL,
	"bytes" bigint NOT NULL,
	"sha256" text,
	"status" text NOT NULL,
	"status_details" text,
	"storage_key" text,
	"created_at" timestamp with time zone NOT NULL,
	"expires_at" timestamp with time zone
);
--> statement-breakpoint
CREATE TABLE "fine_tuning_events" (
	"job_id" text NOT NULL,
	"sequence" integer NOT NULL,
	"id" text NOT NULL,
	"level" text NOT NULL,
	"message" text NOT NULL,
	"type" text NOT NULL,
	"data" jsonb NOT NULL,
	"provider_event" text,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "fine_tuning_events_job_id_sequence_pk" PRIMARY KEY("job_id","sequence")
);
--> statement-breakpoint
CREATE TABLE "fine_tuning_jobs" (
	"id" text PRIMARY KEY NOT NULL,
	"request_id" text NOT NULL,
	"organization_id" text NOT NULL,
	"key_id" text NOT NULL,
	"base_model" text NOT NULL,
	"provider_id" text NOT NULL,
	"provider_base_model" text NOT NULL,
	"training_file" text NOT NULL,
	"validation_file" text,
	"suffix" text,
	"seed" integer NOT NULL,
	"hyperparameters" jsonb NOT NULL,
	"metadata" jsonb,
	"token_femto" bigint NOT NULL,
	"fee_basis_points" integer NOT NULL,
	"hold_nano" bigint NOT NULL,
	"status" text DEFAULT 'queued' NOT NULL,
	"error" jsonb,
	"fine_tuned_model" text,
	"file_tokens" bigint,
	"trained_tokens" bigint,
	"provider_file" text,
	"provider_validation_file" text,
	"provider_job" text,
	"create_tries" integer DEFAULT 0 NOT NULL,
	"troubles" integer DEFAULT 0 NOT NULL,
	"useless_answers" integer DEFAULT 0 NOT NULL,
	"is_cleaned_up" boolean DEFAULT false NOT NULL,
	"result_file" text,
	"event_count" integer DEFAULT 0 NOT NULL,
	"version" bigint DEFAULT 1 NOT NULL,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	"due_at" timestamp with time zone DEFAULT clock_timestamp(),
	"running_since" timestamp with time zone,
	"estimated_finish" timestamp with time zone,
	"finished_at" timestamp with time zone
);
--> statement-breakpoint
CREATE TABLE "holds" (
	"id" text PRIMARY KEY NOT NULL,
	"instance_id" text,
	"epoch" bigint,
	"org_account" text NOT NULL,
	"day_account" text NOT NULL,
	"month_account" text NOT NULL,
	"hold_nano" bigint NOT NULL,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
--> statement-breakpoint
CREATE TABLE "idempotency_records" (
	"key_id" text NOT NULL,
	"idempotency_key" text NOT NULL,
	"body_hash" text NOT NULL,
	"request_id" text NOT NULL,
	"instance_id" text NOT NULL,
	"epoch" bigint NOT NULL,
	"status" integer,
	"headers" jsonb,
	"body" "bytea",
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "idempotency_records_key_id_idempotency_key_pk" PRIMARY KEY("key_id","idempotency_key")
);
--> statement-breakpoint
CREATE TABLE "instances" (
	"id" text PRIMARY KEY NOT NULL,
	"epoch" bigint NOT NULL,
	"alive" boolean DEFAULT true NOT NULL,
	"is_alone" boolean DEFAULT false NOT NULL,
	"is_settled" boolean DEFAULT false NOT NULL,
	"started_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	"heartbeat_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
--> statement-breakpoint
CREATE TABLE "organizations" (
	"id" text PRIMARY KEY NOT NULL,
	"name" text NOT NULL,
	"plan" text NOT NULL,
	"created_at" timestamp with time zone DEFAULT now() NOT NULL
);
--> statement-breakpoint
CREATE TABLE "outbox" (
	"id" bigserial PRIMARY KEY NOT NULL,
	"event_id" text NOT NULL,
	"organization_id" text NOT NULL,
	"type" text NOT NULL,
	"data" jsonb NOT NULL,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	"xid" "xid8" DEFAULT pg_current_xact_id() NOT NULL,
	CONSTRAINT "outbox_event_id_unique" UNIQUE("event_id")
);
--> statement-breakpoint
CREATE TABLE "sandbox_tunings" (
	"id" text PRIMARY KEY NOT NULL,
	"file_name" text NOT NULL,
	"learned" text,
	"tokens" bigint NOT NULL,
	"uploaded_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	"file_deleted_at" timestamp with time zone,
	"tag" text,
	"model" text,
	"epochs" integer,
	"started_at_ms" bigint,
	"cancelled_at_ms" bigint
);
--> statement-breakpoint
CREATE TABLE "transactions" (
	"organization_id" text NOT NULL,
	"sequence" bigint NOT NULL,
	"id" text NOT NULL,
	"type" text NOT NULL,
	"amount_nano" bigint NOT NULL,
	"balance_after_nano" bigint NOT NULL,
	"description" text NOT NULL,
	"key_id" text,
	"request_id" text,
	"model" text,
	"provider" text,
	"status" integer,
	"prompt_tokens" bigint,
	"cached_prompt_tokens" bigint,
	"completion_tokens" bigint,
	"reasoning_tokens" bigint,
	"estimated" boolean,
	"latency_ms" integer,
	"details" jsonb,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "transactions_organization_id_sequence_pk" PRIMARY KEY("organization_id","sequence")
);
--> statement-breakpoint
CREATE TABLE "tuned_models" (
	"id" text PRIMARY KEY NOT NULL,
	"organization_id" text NOT NULL,
	"job_id" text NOT NULL,
	"base_model" text NOT NULL,
	"suffix" text,
	"provider_id" text NOT NULL,
	"provider_model" text NOT NULL,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	"deleted_at" timestamp with time zone,
	CONSTRAINT "tuned_models_job_id_unique" UNIQUE("job_id")
);
--> statement-breakpoint
CREATE TABLE "webhook_queues" (
	"webhook_id" text PRIMARY KEY NOT NULL,
	"numbered" "pg_snapshot" DEFAULT pg_current_snapshot() NOT NULL,
	"last_sequence" bigint DEFAULT 0 NOT NULL,
	"due_at" timestamp with time zone
);
--> statement-breakpoint
CREATE TABLE "webhooks" (
	"id" text PRIMARY KEY NOT NULL,
	"organization_id" text NOT NULL,
	"url" text NOT NULL,
	"events" text[] NOT NULL,
	"description" text,
	"enabled" boolean NOT NULL,
	"secret" "bytea" NOT NULL,
	"previous_secret" "bytea",
	"previous_secret_until" timestamp with time zone,
	"created_at" timestamp with time zone NOT NULL,
	"disabled_at" timestamp with time zone,
	"disabled_by" text,
	"version" bigint DEFAULT 1 NOT NULL
);
--> statement-breakpoint
ALTER TABLE "api_keys" ADD CONSTRAINT "api_keys_organization_id_organizations_id_fk" FOREIGN KEY ("organization_id") REFERENCES "public"."organizations"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "files" ADD CONSTRAINT "files_organization_id_organizations_id_fk" FOREIGN KEY ("organization_id") REFERENCES "public"."organizations"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "fine_tuning_jobs" ADD CONSTRAINT "fine_tuning_jobs_organization_id_organizations_id_fk" FOREIGN KEY ("organization_id") REFERENCES "public"."organizations"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "webhook_queues" ADD CONSTRAINT "webhook_queues_webhook_id_webhooks_id_fk" FOREIGN KEY ("webhook_id") REFERENCES "public"."webhooks"("id") ON DELETE cascade ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "webhooks" ADD CONSTRAINT "webhooks_organization_id_organizations_id_fk" FOREIGN KEY ("organization_id") REFERENCES "public"."organizations"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "accounts_key" ON "accounts" USING btree ("key_id","kind","period_start");--> statement-breakpoint
CREATE INDEX "actor_leases_instance" ON "actor_leases" USING btree ("instance_id");--> statement-breakpoint
CREATE UNIQUE INDEX "api_keys_hash" ON "api_keys" USING btree ("key_hash");--> statement-breakpoint
CREATE UNIQUE INDEX "api_keys_name" ON "api_keys" USING btree ("organization_id","name") WHERE deleted_at IS NULL;--> statement-breakpoint
CREATE INDEX "api_keys_listing" ON "api_keys" USING btree ("organization_id","created_at","id");--> statement-breakpoint
CREATE INDEX "catalogue_document" ON "catalogue_search" USING gin ("document");--> statement-breakpoint
CREATE INDEX "changes_time" ON "changes" USING btree ("changed_at");--> statement-breakpoint
CREATE INDEX "commit_marks_time" ON "commit_marks" USING btree ("marked_at");--> statement-breakpoint
CREATE INDEX "deliveries_pending" ON "deliveries" USING btree ("webhook_id","sequence") WHERE status = 'pending';--> statement-breakpoint
CREATE INDEX "deliveries_age" ON "deliveries" USING brin ("created_at");--> statement-breakpoint
CREATE INDEX "file_removals_due" ON "file_removals" USING btree ("due_at");--> statement-breakpoint
CREATE INDEX "file_uploads_age" ON "file_uploads" USING btree ("renewed_at");--> statement-breakpoint
CREATE INDEX "file_uses_holder" ON "file_uses" USING btree ("holder","file_id");--> statement-breakpoint
CREATE INDEX "files_listing" ON "files" USING btree ("organization_id","id" COLLATE "C");--> statement-breakpoint
CREATE INDEX "files_expiry" ON "files" USING btree ("expires_at") WHERE expires_at IS NOT NULL;--> statement-breakpoint
CREATE UNIQUE INDEX "fine_tuning_events_id" ON "fine_tuning_events" USING btree ("job_id","id");--> statement-breakpoint
CREATE UNIQUE INDEX "fine_tuning_events_provider" ON "fine_tuning_events" USING btree ("job_id","provider_event");--> statement-breakpoint
CREATE INDEX "fine_tuning_jobs_listing" ON "fine_tuning_jobs" USING btree ("organization_id","created_at","id");--> statement-breakpoint
CREATE INDEX "fine_tuning_jobs_due" ON "fine_tuning_jobs" USING btree ("due_at") WHERE due_at IS NOT NULL;--> statement-breakpoint
CREATE INDEX "idempotency_age" ON "idempotency_records" USING btree ("created_at");--> statement-breakpoint
CREATE INDEX "idempotency_running" ON "idempotency_records" USING btree ("instance_id") WHERE status IS NULL;--> statement-breakpoint
CREATE INDEX "outbox_unseen" ON "outbox" USING btree ("organization_id","type","xid");--> statement-breakpoint
CREATE INDEX "outbox_transaction" ON "outbox" USING btree ("xid");--> statement-breakpoint
CREATE INDEX "outbox_age" ON "outbox" USING brin ("created_at");--> statement-breakpoint
CREATE UNIQUE INDEX "sandbox_tunings_tag" ON "sandbox_tunings" USING btree ("tag");--> statement-breakpoint
CREATE INDEX "sandbox_tunings_file" ON "sandbox_tunings" USING btree ("file_name");--> statement-breakpoint
CREATE UNIQUE INDEX "transactions_request" ON "transactions" USING btree ("request_id") WHERE request_id IS NOT NULL;--> statement-breakpoint
CREATE INDEX "transactions_time" ON "transactions" USING brin ("created_at");--> statement-breakpoint
CREATE INDEX "tuned_models_organization" ON "tuned_models" USING btree ("organization_id") WHERE deleted_at IS NULL;--> statement-breakpoint
CREATE INDEX "webhook_queues_due" ON "webhook_queues" USING btree ("due_at") WHERE due_at IS NOT NULL;--> statement-breakpoint
CREATE INDEX "webhooks_listing" ON "webhooks" USING btree ("organization_id","created_at","id");