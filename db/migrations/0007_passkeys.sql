-- Passkeys of people, and the challenges that they sign.

CREATE TABLE "passkey_challenges" (
	"challenge" text PRIMARY KEY NOT NULL,
	"person_id" text,
	"expires_at" timestamp with time zone NOT NULL
);

CREATE TABLE "passkeys" (
	"id" text PRIMARY KEY NOT NULL,
	"person_id" text NOT NULL,
	"name" text NOT NULL,
	"public_key" "bytea" NOT NULL,
	"counter" bigint NOT NULL,
	"transports" text[] NOT NULL,
	"is_backed_up" boolean NOT NULL,
	"created_at" timestamp with time zone NOT NULL,
	"last_used_at" timestamp with time zone
);

ALTER TABLE "passkey_challenges" ADD CONSTRAINT "passkey_challenges_person_id_people_id_fk" FOREIGN KEY ("person_id") REFERENCES "public"."people"("id") ON DELETE no action ON UPDATE no action;
ALTER TABLE "passkeys" ADD CONSTRAINT "passkeys_person_id_people_id_fk" FOREIGN KEY ("person_id") REFERENCES "public"."people"("id") ON DELETE no action ON UPDATE no action;
CREATE INDEX "passkey_challenges_expiry" ON "passkey_challenges" USING btree ("expires_at");
CREATE INDEX "passkeys_of_person" ON "passkeys" USING btree ("person_id");

CREATE TRIGGER audit_created AFTER INSERT ON passkeys FOR EACH ROW
EXECUTE FUNCTION audit_row('passkey.created', 'person', 'person_id', 'name');
CREATE TRIGGER audit_deleted AFTER DELETE ON passkeys FOR EACH ROW
EXECUTE FUNCTION audit_row('passkey.deleted', 'person', 'person_id', 'name');
