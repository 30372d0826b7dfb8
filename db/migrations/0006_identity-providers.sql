-- Identity providers at which people sign in, and their accounts there.

CREATE TABLE "identity_providers" (
	"id" text PRIMARY KEY NOT NULL,
	"name" text NOT NULL,
	"issuer" text NOT NULL,
	"client_id" text NOT NULL,
	"secret" "bytea" NOT NULL,
	"scopes" text NOT NULL,
	"vouches_for_email" boolean NOT NULL,
	"rules" jsonb NOT NULL,
	"created_at" timestamp with time zone NOT NULL,
	"updated_at" timestamp with time zone NOT NULL
);

CREATE TABLE "person_identities" (
	"provider_id" text NOT NULL,
	"subject" text NOT NULL,
	"person_id" text NOT NULL,
	"created_at" timestamp with time zone NOT NULL,
	CONSTRAINT "person_identities_provider_id_subject_pk" PRIMARY KEY("provider_id","subject")
);

ALTER TABLE "members" ADD COLUMN "identity_provider_id" text;
ALTER TABLE "people" ADD COLUMN "operator_provider_id" text;
ALTER TABLE "person_identities" ADD CONSTRAINT "person_identities_provider_id_identity_providers_id_fk" FOREIGN KEY ("provider_id") REFERENCES "public"."identity_providers"("id") ON DELETE cascade ON UPDATE no action;
ALTER TABLE "person_identities" ADD CONSTRAINT "person_identities_person_id_people_id_fk" FOREIGN KEY ("person_id") REFERENCES "public"."people"("id") ON DELETE no action ON UPDATE no action;
CREATE UNIQUE INDEX "identity_providers_name" ON "identity_providers" USING btree ("name");

CREATE TRIGGER audit_created AFTER INSERT ON identity_providers FOR EACH ROW
EXECUTE FUNCTION audit_row('identity_provider.created', 'identity_provider', 'id', '*');
CREATE TRIGGER audit_updated AFTER UPDATE ON identity_providers FOR EACH ROW
EXECUTE FUNCTION audit_row('identity_provider.updated', 'identity_provider', 'id', '*');
CREATE TRIGGER audit_deleted AFTER DELETE ON identity_providers FOR EACH ROW
EXECUTE FUNCTION audit_row('identity_provider.deleted', 'identity_provider', 'id', 'name', 'issuer');
