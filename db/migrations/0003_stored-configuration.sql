CREATE TABLE "configuration_entries" (
	"kind" text NOT NULL,
	"id" text NOT NULL,
	"version" integer NOT NULL,
	"body" jsonb NOT NULL,
	"secret" "bytea",
	"unreachable_since" timestamp with time zone,
	"created_at" timestamp with time zone NOT NULL,
	"updated_at" timestamp with time zone NOT NULL,
	"deleted_at" timestamp with time zone,
	CONSTRAINT "configuration_entries_kind_id_pk" PRIMARY KEY("kind","id")
);

--> statement-breakpoint
DO $$
DECLARE
  v_kind text;
BEGIN
  FOREACH v_kind IN ARRAY ARRAY['provider', 'model', 'alias', 'price'] LOOP
    EXECUTE format($trigger$
      CREATE TRIGGER audit_%1$s_created AFTER INSERT ON configuration_entries FOR EACH ROW
      WHEN (NEW.kind = %1$L)
      EXECUTE FUNCTION audit_row('%1$s.created', %1$L, 'id', '*', '-kind');
      CREATE TRIGGER audit_%1$s_updated AFTER UPDATE ON configuration_entries FOR EACH ROW
      WHEN (NEW.kind = %1$L AND NEW.deleted_at IS NULL)
      EXECUTE FUNCTION audit_row('%1$s.updated', %1$L, 'id', '*', '-kind');
      CREATE TRIGGER audit_%1$s_deleted AFTER UPDATE ON configuration_entries FOR EACH ROW
      WHEN (NEW.kind = %1$L AND OLD.deleted_at IS NULL AND NEW.deleted_at IS NOT NULL)
      EXECUTE FUNCTION audit_row('%1$s.deleted', %1$L, 'id', '*', '-kind')
    $trigger$, v_kind);
  END LOOP;
END $$;
