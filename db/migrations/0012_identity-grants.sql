-- The rules of identity providers that people meet, so that roles end with the rules that granted them.

ALTER TABLE "person_identities" ADD COLUMN "met_rules" jsonb;
CREATE INDEX "person_identities_person" ON "person_identities" USING btree ("person_id");

-- An earlier version has deleted providers and left the roles that they had granted. These stay.
UPDATE "members" SET "identity_provider_id" = NULL WHERE "identity_provider_id" IS NOT NULL
AND "identity_provider_id" NOT IN (SELECT "id" FROM "identity_providers");
UPDATE "people" SET "operator_provider_id" = NULL WHERE "operator_provider_id" IS NOT NULL
AND "operator_provider_id" NOT IN (SELECT "id" FROM "identity_providers");
