-- What is rare in a list, found without going through all that is not. An index is built under a lock that
-- keeps writers out, so it is built here only where that is over at once; the README says how a larger
-- database gets it. Without it the same lists are slower, nothing else.
DO $$
DECLARE
  v_small_bytes CONSTANT bigint := 128 * 1024 * 1024;
BEGIN
  IF pg_relation_size('transactions') < v_small_bytes THEN
    CREATE INDEX IF NOT EXISTS "transactions_entries" ON "transactions"
      USING btree ("organization_id", "type", "sequence") WHERE type <> 'usage';
  END IF;
  IF pg_relation_size('deliveries') < v_small_bytes THEN
    CREATE INDEX IF NOT EXISTS "deliveries_given_up" ON "deliveries"
      USING btree ("webhook_id", "status", "outbox_id") WHERE status IN ('failed', 'dropped');
  END IF;
END
$$;
