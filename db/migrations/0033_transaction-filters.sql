-- Lists of one key and of one model, in order, far behind too. As in 0009 an index is built here only where that
-- is over at once; docs/operations.md says how a larger database gets it. Without it the same lists are slower.
DO $$
DECLARE
  v_small_bytes CONSTANT bigint := 128 * 1024 * 1024;
BEGIN
  IF pg_relation_size('transactions') < v_small_bytes THEN
    CREATE INDEX IF NOT EXISTS "transactions_of_key" ON "transactions"
      USING btree ("organization_id", "key_id", "sequence");
    CREATE INDEX IF NOT EXISTS "transactions_of_model" ON "transactions"
      USING btree ("organization_id", "model", "sequence") WHERE model IS NOT NULL;
  END IF;
END
$$;
