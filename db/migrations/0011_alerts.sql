-- Alerts for people: channels of organizations, and the choice of alerts by mail of each member.

CREATE TABLE "alert_channels" (
	"id" text PRIMARY KEY NOT NULL,
	"organization_id" text NOT NULL,
	"member_id" text,
	"type" text NOT NULL,
	"name" text NOT NULL,
	"alerts" text[] NOT NULL,
	"sealed_url" "bytea",
	"host" text NOT NULL,
	"url_changed_at" timestamp with time zone NOT NULL,
	"enabled" boolean NOT NULL,
	"created_at" timestamp with time zone NOT NULL,
	"disabled_at" timestamp with time zone,
	"disabled_by" text,
	"version" bigint DEFAULT 1 NOT NULL,
	CONSTRAINT "alert_channels_receiver" CHECK ((type = 'email') = (member_id IS NOT NULL))
);

CREATE TABLE "alert_numbering" (
	"id" integer PRIMARY KEY NOT NULL,
	"last_sequence" bigint NOT NULL
);

CREATE TABLE "alert_states" (
	"channel_id" text PRIMARY KEY NOT NULL,
	"organization_id" text NOT NULL,
	"sequence" bigint NOT NULL,
	"due_at" timestamp with time zone,
	"failed_attempts" integer DEFAULT 0 NOT NULL,
	"hour_started_at" timestamp with time zone,
	"hour_messages" integer DEFAULT 0 NOT NULL,
	"last_sent_at" timestamp with time zone,
	"last_failed_at" timestamp with time zone,
	"last_error" text,
	"tested_at" timestamp with time zone
);

CREATE TABLE "alerts" (
	"id" bigint PRIMARY KEY NOT NULL,
	"organization_id" text NOT NULL,
	"kind" text NOT NULL,
	"member_id" text,
	"sequence" bigint,
	"type" text NOT NULL,
	"data" jsonb NOT NULL,
	"created_at" timestamp with time zone NOT NULL
);

CREATE TABLE "error_rates" (
	"organization_id" text PRIMARY KEY NOT NULL,
	"hour" timestamp with time zone NOT NULL,
	"requests" bigint NOT NULL,
	"errors" bigint NOT NULL,
	"sampled_at" timestamp with time zone NOT NULL,
	"is_high" boolean NOT NULL
);

ALTER TABLE "alert_channels" ADD CONSTRAINT "alert_channels_organization_id_organizations_id_fk" FOREIGN KEY ("organization_id") REFERENCES "public"."organizations"("id") ON DELETE no action ON UPDATE no action;
ALTER TABLE "alert_channels" ADD CONSTRAINT "alert_channels_member_id_members_id_fk" FOREIGN KEY ("member_id") REFERENCES "public"."members"("id") ON DELETE no action ON UPDATE no action;
ALTER TABLE "alert_states" ADD CONSTRAINT "alert_states_channel_id_alert_channels_id_fk" FOREIGN KEY ("channel_id") REFERENCES "public"."alert_channels"("id") ON DELETE cascade ON UPDATE no action;
CREATE INDEX "alert_channels_listing" ON "alert_channels" USING btree ("organization_id","created_at","id");
CREATE UNIQUE INDEX "alert_channels_of_member" ON "alert_channels" USING btree ("member_id") WHERE member_id IS NOT NULL;
CREATE INDEX "alert_states_due" ON "alert_states" USING btree ("due_at") WHERE due_at IS NOT NULL;
CREATE INDEX "alerts_unnumbered" ON "alerts" USING btree ("id") WHERE sequence IS NULL;
CREATE INDEX "alerts_order" ON "alerts" USING btree ("organization_id","sequence") WHERE sequence IS NOT NULL;
CREATE INDEX "alerts_age" ON "alerts" USING btree ("created_at");

CREATE TRIGGER outbox_alerts AFTER INSERT ON outbox
REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION queue_alerts();
CREATE TRIGGER emit_webhook_disabled AFTER UPDATE OF enabled ON webhooks FOR EACH ROW
WHEN (OLD.enabled AND NOT NEW.enabled AND NEW.disabled_by = 'failures')
EXECUTE FUNCTION emit_webhook_disabled();

CREATE TRIGGER audit_created AFTER INSERT ON alert_channels FOR EACH ROW
EXECUTE FUNCTION audit_row('alert_channel.created', 'alert_channel', 'id', 'name', 'type', 'host', 'member_id', 'alerts',
  'enabled');
CREATE TRIGGER audit_deleted AFTER DELETE ON alert_channels FOR EACH ROW
EXECUTE FUNCTION audit_row('alert_channel.deleted', 'alert_channel', 'id', 'name', 'type', 'host', 'member_id', 'alerts',
  'enabled');
CREATE TRIGGER audit_updated AFTER UPDATE ON alert_channels FOR EACH ROW
EXECUTE FUNCTION audit_row('alert_channel.updated', 'alert_channel', 'id', 'name', 'host', 'alerts', 'enabled',
  'disabled_by');
CREATE TRIGGER audit_url_changed AFTER UPDATE OF url_changed_at ON alert_channels FOR EACH ROW
WHEN (NEW.url_changed_at <> OLD.url_changed_at)
EXECUTE FUNCTION audit_row('alert_channel.url_changed', 'alert_channel', 'id', 'host');
