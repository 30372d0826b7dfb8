-- People with accounts, their memberships in organizations, and teams. New columns of existing tables are null, so adding
-- them rewrites no table.

-- Instances cannot send heartbeats while this transaction runs, so it waits for locks a short time only.
SET LOCAL lock_timeout = '1s';

-- Comes first, because every transaction of an instance locks this table first.
LOCK TABLE instances IN EXCLUSIVE MODE;

CREATE TABLE "account_links" (
	"token_hash" text PRIMARY KEY NOT NULL,
	"purpose" text NOT NULL,
	"person_id" text,
	"created_at" timestamp with time zone NOT NULL,
	"expires_at" timestamp with time zone NOT NULL,
	"used_at" timestamp with time zone
);

CREATE TABLE "invitations" (
	"id" text PRIMARY KEY NOT NULL,
	"organization_id" text NOT NULL,
	"email" text NOT NULL,
	"role" text NOT NULL,
	"team_ids" text[] NOT NULL,
	"token_hash" text NOT NULL,
	"created_at" timestamp with time zone NOT NULL,
	"expires_at" timestamp with time zone NOT NULL,
	"accepted_at" timestamp with time zone,
	"deleted_at" timestamp with time zone
);

CREATE TABLE "members" (
	"id" text PRIMARY KEY NOT NULL,
	"organization_id" text NOT NULL,
	"person_id" text NOT NULL,
	"role" text NOT NULL,
	"external_id" text,
	"is_active" boolean DEFAULT true NOT NULL,
	"created_at" timestamp with time zone NOT NULL,
	"deleted_at" timestamp with time zone,
	CONSTRAINT "members_of_organization" UNIQUE("organization_id","id"),
	CONSTRAINT "members_role" CHECK (role IN ('owner', 'admin', 'developer', 'billing', 'viewer'))
);

CREATE TABLE "people" (
	"id" text PRIMARY KEY NOT NULL,
	"email" text NOT NULL,
	"name" text NOT NULL,
	"password_hash" text,
	"totp_secret" "bytea",
	"totp_step" text,
	"operator_role" text,
	"created_at" timestamp with time zone NOT NULL,
	"last_sign_in_at" timestamp with time zone,
	CONSTRAINT "people_operator_role" CHECK (operator_role IN ('operator', 'operator_viewer'))
);

CREATE TABLE "team_members" (
	"team_id" text NOT NULL,
	"member_id" text NOT NULL,
	"organization_id" text NOT NULL,
	"role" text NOT NULL,
	CONSTRAINT "team_members_team_id_member_id_pk" PRIMARY KEY("team_id","member_id"),
	CONSTRAINT "team_members_role" CHECK (role IN ('lead', 'member'))
);

CREATE TABLE "teams" (
	"id" text PRIMARY KEY NOT NULL,
	"organization_id" text NOT NULL,
	"name" text NOT NULL,
	"external_id" text,
	"rate_limit_rpm" integer,
	"rate_limit_tpm" integer,
	"allowed_models" text[],
	"guardrail" text,
	"preset" text,
	"max_keys_per_member" integer,
	"max_key_daily_budget_nano" bigint,
	"max_key_lifetime_days" integer,
	"created_at" timestamp with time zone NOT NULL,
	"deleted_at" timestamp with time zone,
	CONSTRAINT "teams_of_organization" UNIQUE("organization_id","id")
);

ALTER TABLE "subject_budgets" DROP CONSTRAINT "subject_budgets_type";
ALTER TABLE "dashboard_sessions" ADD COLUMN "person_id" text;
ALTER TABLE "api_keys" ADD COLUMN "team_id" text;
ALTER TABLE "api_keys" ADD COLUMN "owner_id" text;
ALTER TABLE "account_links" ADD CONSTRAINT "account_links_person_id_people_id_fk" FOREIGN KEY ("person_id") REFERENCES "public"."people"("id") ON DELETE no action ON UPDATE no action;
ALTER TABLE "invitations" ADD CONSTRAINT "invitations_organization_id_organizations_id_fk" FOREIGN KEY ("organization_id") REFERENCES "public"."organizations"("id") ON DELETE no action ON UPDATE no action;
ALTER TABLE "members" ADD CONSTRAINT "members_organization_id_organizations_id_fk" FOREIGN KEY ("organization_id") REFERENCES "public"."organizations"("id") ON DELETE no action ON UPDATE no action;
ALTER TABLE "members" ADD CONSTRAINT "members_person_id_people_id_fk" FOREIGN KEY ("person_id") REFERENCES "public"."people"("id") ON DELETE no action ON UPDATE no action;
ALTER TABLE "team_members" ADD CONSTRAINT "team_members_team_id_teams_id_fk" FOREIGN KEY ("team_id") REFERENCES "public"."teams"("id") ON DELETE no action ON UPDATE no action;
ALTER TABLE "team_members" ADD CONSTRAINT "team_members_member_id_members_id_fk" FOREIGN KEY ("member_id") REFERENCES "public"."members"("id") ON DELETE no action ON UPDATE no action;
ALTER TABLE "teams" ADD CONSTRAINT "teams_organization_id_organizations_id_fk" FOREIGN KEY ("organization_id") REFERENCES "public"."organizations"("id") ON DELETE no action ON UPDATE no action;
CREATE INDEX "account_links_person" ON "account_links" USING btree ("person_id");
CREATE UNIQUE INDEX "invitations_token" ON "invitations" USING btree ("token_hash");
CREATE INDEX "invitations_listing" ON "invitations" USING btree ("organization_id","id");
CREATE UNIQUE INDEX "members_person" ON "members" USING btree ("organization_id","person_id") WHERE deleted_at IS NULL;
CREATE INDEX "members_of_person" ON "members" USING btree ("person_id");
CREATE UNIQUE INDEX "people_email" ON "people" USING btree (lower(email));
CREATE INDEX "team_members_of_member" ON "team_members" USING btree ("member_id");
CREATE UNIQUE INDEX "teams_name" ON "teams" USING btree ("organization_id","name") WHERE deleted_at IS NULL;
CREATE INDEX "teams_listing" ON "teams" USING btree ("organization_id","id");
CREATE INDEX "dashboard_sessions_person" ON "dashboard_sessions" USING btree ("person_id") WHERE person_id IS NOT NULL;
CREATE INDEX "api_keys_team" ON "api_keys" USING btree ("team_id") WHERE team_id IS NOT NULL;
CREATE INDEX "api_keys_owner" ON "api_keys" USING btree ("owner_id") WHERE owner_id IS NOT NULL;
ALTER TABLE "subject_budgets" ADD CONSTRAINT "subject_budgets_type" CHECK (subject_type IN ('user', 'tag', 'team', 'member'));

-- The team and the owner of a key are always of its organization. Existing keys have neither, so nothing is checked now.
ALTER TABLE api_keys ADD CONSTRAINT api_keys_team_fk FOREIGN KEY (organization_id, team_id)
  REFERENCES teams (organization_id, id) NOT VALID;
ALTER TABLE api_keys ADD CONSTRAINT api_keys_owner_fk FOREIGN KEY (organization_id, owner_id)
  REFERENCES members (organization_id, id) NOT VALID;
ALTER TABLE team_members ADD CONSTRAINT team_members_team_fk FOREIGN KEY (organization_id, team_id)
  REFERENCES teams (organization_id, id);
ALTER TABLE team_members ADD CONSTRAINT team_members_member_fk FOREIGN KEY (organization_id, member_id)
  REFERENCES members (organization_id, id);

CREATE TRIGGER audit_created AFTER INSERT ON teams FOR EACH ROW
EXECUTE FUNCTION audit_row('team.created', 'team', 'id', '*');
CREATE TRIGGER audit_updated AFTER UPDATE ON teams FOR EACH ROW WHEN (NEW.deleted_at IS NULL)
EXECUTE FUNCTION audit_row('team.updated', 'team', 'id', '*');
CREATE TRIGGER audit_deleted AFTER UPDATE OF deleted_at ON teams FOR EACH ROW
WHEN (OLD.deleted_at IS NULL AND NEW.deleted_at IS NOT NULL)
EXECUTE FUNCTION audit_row('team.deleted', 'team', 'id', 'name');

CREATE TRIGGER audit_created AFTER INSERT ON members FOR EACH ROW
EXECUTE FUNCTION audit_row('member.created', 'member', 'id', 'person_id', 'role');
CREATE TRIGGER audit_updated AFTER UPDATE ON members FOR EACH ROW WHEN (NEW.deleted_at IS NULL)
EXECUTE FUNCTION audit_row('member.updated', 'member', 'id', 'role', 'is_active');
CREATE TRIGGER audit_deleted AFTER UPDATE OF deleted_at ON members FOR EACH ROW
WHEN (OLD.deleted_at IS NULL AND NEW.deleted_at IS NOT NULL)
EXECUTE FUNCTION audit_row('member.deleted', 'member', 'id', 'person_id', 'role');

CREATE TRIGGER audit_created AFTER INSERT ON team_members FOR EACH ROW
EXECUTE FUNCTION audit_row('team_member.created', 'team', 'team_id', 'member_id', 'role');
CREATE TRIGGER audit_updated AFTER UPDATE ON team_members FOR EACH ROW
EXECUTE FUNCTION audit_row('team_member.updated', 'team', 'team_id', 'member_id', 'role');
CREATE TRIGGER audit_deleted AFTER DELETE ON team_members FOR EACH ROW
EXECUTE FUNCTION audit_row('team_member.deleted', 'team', 'team_id', 'member_id', 'role');

CREATE TRIGGER audit_created AFTER INSERT ON invitations FOR EACH ROW
EXECUTE FUNCTION audit_row('invitation.created', 'invitation', 'id', 'email', 'role', 'team_ids');
CREATE TRIGGER audit_accepted AFTER UPDATE OF accepted_at ON invitations FOR EACH ROW
WHEN (OLD.accepted_at IS NULL AND NEW.accepted_at IS NOT NULL)
EXECUTE FUNCTION audit_row('invitation.accepted', 'invitation', 'id', 'email', 'role');
CREATE TRIGGER audit_deleted AFTER UPDATE OF deleted_at ON invitations FOR EACH ROW
WHEN (OLD.deleted_at IS NULL AND NEW.deleted_at IS NOT NULL)
EXECUTE FUNCTION audit_row('invitation.deleted', 'invitation', 'id', 'email', 'role');

CREATE TRIGGER audit_created AFTER INSERT ON people FOR EACH ROW
EXECUTE FUNCTION audit_row('person.created', 'person', 'id', 'email', 'name', 'operator_role');
CREATE TRIGGER audit_updated AFTER UPDATE ON people FOR EACH ROW
EXECUTE FUNCTION audit_row('person.updated', 'person', 'id', 'email', 'name', 'operator_role');
CREATE TRIGGER audit_password AFTER UPDATE OF password_hash ON people FOR EACH ROW
WHEN (OLD.password_hash IS DISTINCT FROM NEW.password_hash)
EXECUTE FUNCTION audit_row('person.password_changed', 'person', 'id');
CREATE TRIGGER audit_second_factor AFTER UPDATE OF totp_secret ON people FOR EACH ROW
WHEN ((OLD.totp_secret IS NULL) <> (NEW.totp_secret IS NULL))
EXECUTE FUNCTION audit_row('person.second_factor_changed', 'person', 'id');
