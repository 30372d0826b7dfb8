CREATE TABLE "playground_secrets" (
	"session_hash" text PRIMARY KEY NOT NULL,
	"secret_hash" text NOT NULL,
	"key_id" text NOT NULL,
	"expires_at" timestamp with time zone NOT NULL
);
--> statement-breakpoint
ALTER TABLE "api_keys" ADD COLUMN "playground_holder" text;--> statement-breakpoint
ALTER TABLE "playground_secrets" ADD CONSTRAINT "playground_secrets_session_hash_dashboard_sessions_token_hash_fk" FOREIGN KEY ("session_hash") REFERENCES "public"."dashboard_sessions"("token_hash") ON DELETE cascade ON UPDATE cascade;--> statement-breakpoint
ALTER TABLE "playground_secrets" ADD CONSTRAINT "playground_secrets_key_id_api_keys_id_fk" FOREIGN KEY ("key_id") REFERENCES "public"."api_keys"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE UNIQUE INDEX "playground_secrets_hash" ON "playground_secrets" USING btree ("secret_hash");--> statement-breakpoint
CREATE INDEX "playground_secrets_key" ON "playground_secrets" USING btree ("key_id");--> statement-breakpoint
CREATE UNIQUE INDEX "api_keys_playground" ON "api_keys" USING btree ("organization_id","playground_holder") WHERE playground_holder IS NOT NULL;