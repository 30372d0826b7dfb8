-- Brings a database of version 0.1 to the state of migrations/0000_baseline.sql. Its last migration was 0053, or a
-- later one up to 0061. Each statement may run again without effect. An instance of 0.1 cannot start
-- afterwards.

-- Comes first, because every transaction of an instance locks this table first.
ALTER TABLE instances DROP COLUMN IF EXISTS knows_provider_batches;

-- Former migration 0057: a bit of budget_events records budget.exhausted, which 0.1 emitted together with the threshold
-- of 100 %. From 0057 on a period may have reached the threshold without budget.exhausted.
UPDATE accounts SET budget_events = budget_events | 8
WHERE budget_events & 12 = 4 AND kind IN ('day', 'month')
  AND period_start >= date_trunc('month', now() AT TIME ZONE 'UTC' - interval '1 day')::date
  AND NOT EXISTS (SELECT 1 FROM drizzle.__drizzle_migrations WHERE created_at >= 1795550057000);

-- Former migration 0061.
CREATE TABLE IF NOT EXISTS answer_steps (
  key_id text NOT NULL,
  idempotency_key text NOT NULL,
  body_hash text NOT NULL,
  request_id text NOT NULL,
  is_paid boolean NOT NULL DEFAULT false,
  sealed bytea NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  CONSTRAINT answer_steps_key_id_idempotency_key_pk PRIMARY KEY (key_id, idempotency_key)
);
CREATE INDEX IF NOT EXISTS answer_steps_age ON answer_steps (created_at);

-- Objects that only instances of versions before 0.1 used.
DROP FUNCTION IF EXISTS ledger_settle(jsonb);
DROP FUNCTION IF EXISTS ledger_exchange(jsonb);
DROP FUNCTION IF EXISTS ledger_exchange_of_keys(jsonb);
DROP FUNCTION IF EXISTS clean_deliveries(text[], integer);
DROP TRIGGER IF EXISTS usage_totals_missed ON usage_cursors;
DROP FUNCTION IF EXISTS usage_totals_missed();
DROP TRIGGER IF EXISTS keep_ending_subscription ON plan_subscriptions;
DROP FUNCTION IF EXISTS keep_ending_subscription();
ALTER TABLE usage_cursors DROP COLUMN IF EXISTS totalled;
ALTER TABLE webhook_queues DROP COLUMN IF EXISTS last_sequence;
DROP INDEX IF EXISTS outbox_unseen, outbox_transaction;

-- The audit entry of a deleted key shows budget_includes_byok, as those of created and changed keys do.
CREATE OR REPLACE TRIGGER audit_deleted AFTER UPDATE OF deleted_at ON api_keys FOR EACH ROW
WHEN (OLD.deleted_at IS NULL AND NEW.deleted_at IS NOT NULL)
EXECUTE FUNCTION audit_row('key.deleted', 'key', 'id', 'kind', 'name', 'key_prefix', 'scopes', 'rate_limit_rpm',
  'rate_limit_tpm', 'daily_budget_nano', 'monthly_budget_nano', 'budget_includes_byok', 'allowed_models', 'expires_at',
  'is_active');

DELETE FROM drizzle.__drizzle_migrations;
