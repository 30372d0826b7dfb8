CREATE TABLE "dashboard_sessions" (
	"token_hash" text PRIMARY KEY NOT NULL,
	"kind" text NOT NULL,
	"key_id" text NOT NULL,
	"created_at" timestamp with time zone NOT NULL,
	"last_used_at" timestamp with time zone NOT NULL
);
--> statement-breakpoint
CREATE INDEX "dashboard_sessions_of_key" ON "dashboard_sessions" USING btree ("key_id","created_at");--> statement-breakpoint
CREATE INDEX "dashboard_sessions_age" ON "dashboard_sessions" USING btree ("created_at");