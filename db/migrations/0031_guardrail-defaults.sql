CREATE TABLE "guardrail_defaults" (
	"organization_id" text NOT NULL,
	"key_id" text NOT NULL,
	"guardrail_id" text NOT NULL,
	CONSTRAINT "guardrail_defaults_organization_id_key_id_pk" PRIMARY KEY("organization_id","key_id")
);
--> statement-breakpoint
ALTER TABLE "guardrail_defaults" ADD CONSTRAINT "guardrail_defaults_organization_id_organizations_id_fk" FOREIGN KEY ("organization_id") REFERENCES "public"."organizations"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
ALTER TABLE "guardrail_defaults" ADD CONSTRAINT "guardrail_defaults_guardrail_id_definitions_id_fk" FOREIGN KEY ("guardrail_id") REFERENCES "public"."definitions"("id") ON DELETE no action ON UPDATE no action;--> statement-breakpoint
CREATE INDEX "guardrail_defaults_guardrail" ON "guardrail_defaults" USING btree ("guardrail_id");