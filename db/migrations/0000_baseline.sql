-- Tables, indexes, views and triggers, by topic. db/schema says what each table and column is.
--
-- Tables whose rows are updated often leave free space in their pages (fillfactor), so that an update stays in its page
-- and writes no index.
--
-- The functions of triggers and views are in db/functions. A start creates them before this file runs.

-- Instances, leases and the master key

CREATE TABLE instances (
  id text PRIMARY KEY,
  epoch bigint NOT NULL,
  alive boolean NOT NULL DEFAULT true,
  is_alone boolean NOT NULL DEFAULT false,
  is_settled boolean NOT NULL DEFAULT false,
  started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  heartbeat_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  master_key_ids text[]
) WITH (fillfactor = 50);

-- Instances that count as alive, by this server's clock.
CREATE VIEW live_instances AS
SELECT id, epoch FROM instances
WHERE alive AND heartbeat_at > clock_timestamp() - instance_lease();

CREATE TABLE actor_leases (
  kind text NOT NULL,
  id text NOT NULL,
  instance_id text,
  instance_epoch bigint,
  epoch bigint NOT NULL,
  CONSTRAINT actor_leases_kind_id_pk PRIMARY KEY (kind, id)
);
CREATE INDEX actor_leases_instance ON actor_leases (instance_id);

-- Actors that a live instance owns. Other instances may take over all others.
CREATE VIEW owned_actors AS
SELECT l.kind, l.id FROM actor_leases l JOIN live_instances i ON i.id = l.instance_id AND i.epoch = l.instance_epoch;

CREATE TABLE changes (
  id bigserial PRIMARY KEY,
  kind text NOT NULL,
  object_id text NOT NULL,
  changed_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX changes_time ON changes (changed_at);

CREATE TABLE master_key (
  is_only boolean PRIMARY KEY DEFAULT true,
  salt bytea NOT NULL,
  key_id text NOT NULL,
  proof bytea NOT NULL,
  previous_key_id text,
  changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  CONSTRAINT master_key_is_only CHECK (is_only)
);
CREATE TRIGGER audit_rotated AFTER UPDATE OF key_id ON master_key FOR EACH ROW
WHEN (OLD.key_id <> NEW.key_id)
EXECUTE FUNCTION audit_row('master_key.rotated', 'master_key', '');

-- Organizations and keys

CREATE TABLE organizations (
  id text PRIMARY KEY,
  name text NOT NULL,
  plan text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  fee_basis_points integer,
  file_quota_bytes bigint,
  max_keys integer,
  max_webhooks integer,
  key_count integer NOT NULL DEFAULT 0,
  suspended_at timestamptz,
  may_use_computer boolean NOT NULL DEFAULT false,
  suspended_reason text
);
CREATE INDEX organizations_suspended ON organizations (id) WHERE suspended_at IS NOT NULL;
CREATE TRIGGER audit_created AFTER INSERT ON organizations FOR EACH ROW
EXECUTE FUNCTION audit_row('organization.created', 'organization', 'id', 'name', 'plan');
CREATE TRIGGER audit_plan AFTER UPDATE OF plan ON organizations FOR EACH ROW
WHEN (OLD.plan <> NEW.plan) EXECUTE FUNCTION audit_row('plan.changed', 'organization', 'id', 'plan');
CREATE TRIGGER audit_resumed AFTER UPDATE OF suspended_at ON organizations FOR EACH ROW
WHEN (OLD.suspended_at IS NOT NULL AND NEW.suspended_at IS NULL)
EXECUTE FUNCTION audit_row('organization.resumed', 'organization', 'id', 'suspended_reason=reason');
CREATE TRIGGER audit_suspended AFTER UPDATE OF suspended_at ON organizations FOR EACH ROW
WHEN (OLD.suspended_at IS NULL AND NEW.suspended_at IS NOT NULL)
EXECUTE FUNCTION audit_row('organization.suspended', 'organization', 'id', 'suspended_reason=reason');
CREATE TRIGGER audit_updated AFTER UPDATE OF name, fee_basis_points, file_quota_bytes, max_keys, max_webhooks,
  may_use_computer ON organizations FOR EACH ROW
EXECUTE FUNCTION audit_row('organization.updated', 'organization', 'id', 'name', 'fee_basis_points',
  'file_quota_bytes', 'max_keys', 'max_webhooks', 'may_use_computer=computer_use');

CREATE TABLE api_keys (
  id text PRIMARY KEY,
  organization_id text NOT NULL CONSTRAINT api_keys_organization_id_organizations_id_fk REFERENCES organizations,
  kind text NOT NULL,
  name text NOT NULL,
  key_hash text NOT NULL,
  key_prefix text NOT NULL,
  scopes text[] NOT NULL,
  rate_limit_rpm integer,
  daily_budget_nano bigint,
  monthly_budget_nano bigint,
  allowed_models text[],
  expires_at timestamptz,
  is_active boolean NOT NULL DEFAULT true,
  created_at timestamptz NOT NULL DEFAULT now(),
  deleted_at timestamptz,
  last_used_at timestamptz,
  version bigint NOT NULL DEFAULT 1,
  budget_includes_byok boolean NOT NULL DEFAULT false,
  rate_limit_tpm integer
);
CREATE UNIQUE INDEX api_keys_hash ON api_keys (key_hash);
CREATE INDEX api_keys_listing ON api_keys (organization_id, created_at, id);
CREATE UNIQUE INDEX api_keys_name ON api_keys (organization_id, name) WHERE deleted_at IS NULL;
CREATE TRIGGER audit_created AFTER INSERT ON api_keys FOR EACH ROW
EXECUTE FUNCTION audit_row('key.created', 'key', 'id', 'kind', 'name', 'key_prefix', 'scopes', 'rate_limit_rpm',
  'rate_limit_tpm', 'daily_budget_nano', 'monthly_budget_nano', 'budget_includes_byok', 'allowed_models', 'expires_at',
  'is_active');
CREATE TRIGGER audit_deleted AFTER UPDATE OF deleted_at ON api_keys FOR EACH ROW
WHEN (OLD.deleted_at IS NULL AND NEW.deleted_at IS NOT NULL)
EXECUTE FUNCTION audit_row('key.deleted', 'key', 'id', 'kind', 'name', 'key_prefix', 'scopes', 'rate_limit_rpm',
  'rate_limit_tpm', 'daily_budget_nano', 'monthly_budget_nano', 'budget_includes_byok', 'allowed_models', 'expires_at',
  'is_active');
CREATE TRIGGER audit_updated AFTER UPDATE OF name, key_prefix, scopes, rate_limit_rpm, rate_limit_tpm,
  daily_budget_nano, monthly_budget_nano, budget_includes_byok, allowed_models, expires_at, is_active ON api_keys
FOR EACH ROW WHEN (NEW.deleted_at IS NULL)
EXECUTE FUNCTION audit_row('key.updated', 'key', 'id', 'name', 'key_prefix', 'scopes', 'rate_limit_rpm',
  'rate_limit_tpm', 'daily_budget_nano', 'monthly_budget_nano', 'budget_includes_byok', 'allowed_models', 'expires_at',
  'is_active');
CREATE TRIGGER count_api_keys AFTER INSERT OR DELETE OR UPDATE OF deleted_at ON api_keys
FOR EACH ROW EXECUTE FUNCTION count_api_keys();

CREATE TABLE operator_keys (
  id text PRIMARY KEY,
  name text NOT NULL,
  key_hash text NOT NULL,
  key_prefix text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  revoked_at timestamptz
);
CREATE UNIQUE INDEX operator_keys_hash ON operator_keys (key_hash);
CREATE TRIGGER audit_created AFTER INSERT ON operator_keys FOR EACH ROW
EXECUTE FUNCTION audit_row('operator_key.created', 'operator_key', 'id', 'name', 'key_prefix');
CREATE TRIGGER audit_deleted AFTER UPDATE OF revoked_at ON operator_keys FOR EACH ROW
WHEN (OLD.revoked_at IS NULL AND NEW.revoked_at IS NOT NULL)
EXECUTE FUNCTION audit_row('operator_key.deleted', 'operator_key', 'id', 'name', 'key_prefix');

-- Ledger and idempotency

CREATE TABLE accounts (
  id text PRIMARY KEY,
  kind text NOT NULL,
  organization_id text NOT NULL,
  key_id text,
  period_start date,
  credit_nano bigint NOT NULL DEFAULT 0,
  posted_nano bigint NOT NULL DEFAULT 0,
  held_nano bigint NOT NULL DEFAULT 0,
  sequence bigint NOT NULL DEFAULT 0,
  budget_events integer NOT NULL DEFAULT 0,
  last_used_at timestamptz,
  credit_limit_nano bigint DEFAULT 0,
  last_topup_nano bigint NOT NULL DEFAULT 0,
  replenish_below_nano bigint,
  budget_id text,
  CONSTRAINT accounts_credit_limit CHECK (credit_limit_nano >= 0 AND credit_limit_nano <= 1000000000000000000),
  CONSTRAINT accounts_held CHECK (held_nano >= 0),
  CONSTRAINT accounts_posted CHECK (posted_nano >= 0),
  CONSTRAINT accounts_within_credit CHECK (kind <> 'org' OR credit_nano + credit_limit_nano >= posted_nano + held_nano)
) WITH (fillfactor = 50);
CREATE INDEX accounts_key ON accounts (key_id, kind, period_start);
CREATE TRIGGER emit_credits_low AFTER UPDATE OF credit_nano, credit_limit_nano, posted_nano ON accounts
FOR EACH ROW WHEN (
  NEW.kind = 'org'
  AND NEW.credit_nano + NEW.credit_limit_nano - NEW.posted_nano < greatest(1000000000, NEW.last_topup_nano / 10)
  AND OLD.credit_nano + OLD.credit_limit_nano - OLD.posted_nano >= greatest(1000000000, OLD.last_topup_nano / 10)
) EXECUTE FUNCTION emit_credits_low();
CREATE TRIGGER order_replenishment AFTER UPDATE OF credit_nano, posted_nano ON accounts
FOR EACH ROW WHEN (
  NEW.credit_nano - NEW.posted_nano < NEW.replenish_below_nano
  AND OLD.credit_nano - OLD.posted_nano >= OLD.replenish_below_nano
) EXECUTE FUNCTION order_replenishment();

CREATE TABLE transactions (
  organization_id text NOT NULL,
  sequence bigint NOT NULL,
  id text NOT NULL,
  type text NOT NULL,
  amount_nano bigint NOT NULL,
  balance_after_nano bigint NOT NULL,
  description text NOT NULL,
  key_id text,
  request_id text,
  model text,
  provider text,
  status integer,
  prompt_tokens bigint,
  cached_prompt_tokens bigint,
  completion_tokens bigint,
  reasoning_tokens bigint,
  estimated boolean,
  latency_ms integer,
  details jsonb,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  refunded_request_id text,
  quantities jsonb,
  budget_nano bigint,
  CONSTRAINT transactions_organization_id_sequence_pk PRIMARY KEY (organization_id, sequence)
);
CREATE INDEX transactions_entries ON transactions (organization_id, type, sequence) WHERE type <> 'usage';
CREATE INDEX transactions_of_key ON transactions (organization_id, key_id, sequence);
CREATE INDEX transactions_of_model ON transactions (organization_id, model, sequence) WHERE model IS NOT NULL;
CREATE UNIQUE INDEX transactions_refunded ON transactions (refunded_request_id) WHERE refunded_request_id IS NOT NULL;
CREATE UNIQUE INDEX transactions_request ON transactions (request_id) WHERE request_id IS NOT NULL;
CREATE INDEX transactions_time ON transactions USING brin (created_at);

CREATE TABLE holds (
  id text PRIMARY KEY,
  instance_id text,
  epoch bigint,
  org_account text NOT NULL,
  day_account text NOT NULL,
  month_account text NOT NULL,
  hold_nano bigint NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  budget_nano bigint,
  subject_accounts jsonb
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

CREATE TABLE attempts (
  request_id text PRIMARY KEY,
  instance_id text NOT NULL,
  epoch bigint NOT NULL,
  organization_id text NOT NULL,
  key_id text NOT NULL,
  org_account text NOT NULL,
  day_account text NOT NULL,
  month_account text NOT NULL,
  hold_nano bigint NOT NULL,
  charge_nano bigint NOT NULL,
  model text NOT NULL,
  provider text NOT NULL,
  prompt_tokens bigint NOT NULL,
  completion_tokens bigint NOT NULL,
  estimated boolean NOT NULL,
  latency_ms integer NOT NULL,
  details jsonb,
  started_at timestamptz NOT NULL,
  cached_prompt_tokens bigint,
  reasoning_tokens bigint,
  quantities jsonb,
  description text,
  budget_hold_nano bigint,
  budget_charge_nano bigint,
  subject_accounts jsonb
) WITH (fillfactor = 70);

CREATE TABLE charge_refunds (
  transaction_id text PRIMARY KEY,
  organization_id text NOT NULL,
  refunded_nano bigint NOT NULL
);

CREATE TABLE commit_marks (
  id text PRIMARY KEY,
  marked_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX commit_marks_time ON commit_marks (marked_at);

CREATE TABLE credit_commands (
  id text PRIMARY KEY,
  organization_id text NOT NULL,
  amount_nano bigint NOT NULL,
  description text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  done_at timestamptz,
  transaction_id text,
  refused_code text,
  kind text NOT NULL DEFAULT 'adjustment',
  credit_limit_nano bigint,
  author jsonb DEFAULT nullif(current_setting('gateway.author', true), '')::jsonb,
  limit_before_nano bigint
);
CREATE CONSTRAINT TRIGGER audit_credit_command AFTER INSERT OR UPDATE OF done_at ON credit_commands
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
WHEN (NEW.done_at IS NOT NULL) EXECUTE FUNCTION audit_credit_command();
CREATE TRIGGER note_credit_limit BEFORE UPDATE OF done_at ON credit_commands FOR EACH ROW
WHEN (NEW.kind = 'credit-limit' AND NEW.done_at IS NOT NULL) EXECUTE FUNCTION note_credit_limit();

CREATE TABLE idempotency_records (
  key_id text NOT NULL,
  idempotency_key text NOT NULL,
  body_hash text NOT NULL,
  request_id text NOT NULL,
  instance_id text NOT NULL,
  epoch bigint NOT NULL,
  status integer,
  headers jsonb,
  body bytea,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  CONSTRAINT idempotency_records_key_id_idempotency_key_pk PRIMARY KEY (key_id, idempotency_key)
);
CREATE INDEX idempotency_age ON idempotency_records (created_at);
CREATE INDEX idempotency_running ON idempotency_records (instance_id) WHERE status IS NULL;

CREATE TABLE answer_steps (
  key_id text NOT NULL,
  idempotency_key text NOT NULL,
  body_hash text NOT NULL,
  request_id text NOT NULL,
  is_paid boolean NOT NULL DEFAULT false,
  sealed bytea NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  CONSTRAINT answer_steps_key_id_idempotency_key_pk PRIMARY KEY (key_id, idempotency_key)
);
CREATE INDEX answer_steps_age ON answer_steps (created_at);

-- Budgets of end users and tags

CREATE TABLE subject_budgets (
  id text PRIMARY KEY,
  organization_id text NOT NULL
    CONSTRAINT subject_budgets_organization_id_organizations_id_fk REFERENCES organizations,
  subject_type text NOT NULL,
  subject_value text NOT NULL,
  daily_budget_nano bigint,
  monthly_budget_nano bigint,
  created_at timestamptz NOT NULL,
  CONSTRAINT subject_budgets_type CHECK (subject_type IN ('user', 'tag'))
);
CREATE INDEX subject_budgets_listing ON subject_budgets (organization_id, id);
CREATE UNIQUE INDEX subject_budgets_subject ON subject_budgets (organization_id, subject_type, subject_value);
CREATE TRIGGER audit_created AFTER INSERT ON subject_budgets FOR EACH ROW
EXECUTE FUNCTION audit_row('budget.created', 'budget', 'id', 'subject_type', 'subject_value', 'daily_budget_nano',
  'monthly_budget_nano');
CREATE TRIGGER audit_deleted AFTER DELETE ON subject_budgets FOR EACH ROW
EXECUTE FUNCTION audit_row('budget.deleted', 'budget', 'id', 'subject_type', 'subject_value', 'daily_budget_nano',
  'monthly_budget_nano');
CREATE TRIGGER audit_updated AFTER UPDATE ON subject_budgets FOR EACH ROW
EXECUTE FUNCTION audit_row('budget.updated', 'budget', 'id', 'daily_budget_nano', 'monthly_budget_nano');

-- Payments

CREATE TABLE payment_customers (
  organization_id text NOT NULL
    CONSTRAINT payment_customers_organization_id_organizations_id_fk REFERENCES organizations,
  processor text NOT NULL,
  reference text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  CONSTRAINT payment_customers_organization_id_processor_pk PRIMARY KEY (organization_id, processor)
);

CREATE TABLE payment_methods (
  id text PRIMARY KEY,
  organization_id text NOT NULL
    CONSTRAINT payment_methods_organization_id_organizations_id_fk REFERENCES organizations,
  processor text NOT NULL,
  state text NOT NULL,
  setup_reference text,
  reference text,
  type text,
  brand text,
  last4 text,
  is_default boolean NOT NULL DEFAULT false,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE UNIQUE INDEX payment_methods_default ON payment_methods (organization_id, processor) WHERE is_default;
CREATE INDEX payment_methods_listing ON payment_methods (organization_id, created_at);
CREATE INDEX payment_methods_pending ON payment_methods (created_at) WHERE state = 'pending';
CREATE UNIQUE INDEX payment_methods_reference ON payment_methods (processor, reference, organization_id)
  WHERE state = 'active';
CREATE TRIGGER audit_created AFTER INSERT ON payment_methods FOR EACH ROW
EXECUTE FUNCTION audit_row('payment_method.created', 'payment_method', 'id', 'processor', 'state', 'type', 'brand',
  'last4', 'is_default');
CREATE TRIGGER audit_deleted AFTER DELETE ON payment_methods FOR EACH ROW
EXECUTE FUNCTION audit_row('payment_method.deleted', 'payment_method', 'id', 'state');
CREATE TRIGGER audit_detached AFTER UPDATE OF state ON payment_methods FOR EACH ROW
WHEN (OLD.state <> 'detached' AND NEW.state = 'detached')
EXECUTE FUNCTION audit_row('payment_method.deleted', 'payment_method', 'id', 'type', 'brand', 'last4');
CREATE TRIGGER audit_updated AFTER UPDATE OF state, type, brand, last4, is_default ON payment_methods FOR EACH ROW
WHEN (NEW.state <> 'detached')
EXECUTE FUNCTION audit_row('payment_method.updated', 'payment_method', 'id', 'state', 'type', 'brand', 'last4',
  'is_default');
CREATE TRIGGER resume_replenishment AFTER INSERT OR UPDATE OF is_default ON payment_methods
FOR EACH ROW WHEN (NEW.is_default AND NEW.state = 'active') EXECUTE FUNCTION resume_replenishment();

CREATE TABLE payment_intents (
  id text PRIMARY KEY,
  organization_id text NOT NULL
    CONSTRAINT payment_intents_organization_id_organizations_id_fk REFERENCES organizations,
  key_id text,
  idempotency_key text,
  body_hash text,
  purpose text NOT NULL,
  amount_nano bigint NOT NULL,
  description text NOT NULL,
  processor text NOT NULL,
  customer text,
  method_id text,
  method text NOT NULL,
  return_url text,
  state text NOT NULL DEFAULT 'pending',
  reference text,
  error_reason text,
  error_message text,
  transaction_id text,
  receipt_url text,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  settled_at timestamptz,
  instance_id text NOT NULL,
  busy_until timestamptz NOT NULL,
  looks integer NOT NULL DEFAULT 0,
  next_look_at timestamptz NOT NULL
);
CREATE UNIQUE INDEX payment_intents_idempotency ON payment_intents (key_id, idempotency_key)
  WHERE idempotency_key IS NOT NULL;
CREATE INDEX payment_intents_of_organization ON payment_intents (organization_id, created_at);
CREATE INDEX payment_intents_open ON payment_intents (next_look_at) WHERE state IN ('pending', 'requires_action');
CREATE INDEX payment_intents_reference ON payment_intents (processor, reference) WHERE reference IS NOT NULL;
CREATE UNIQUE INDEX payment_intents_transaction ON payment_intents (transaction_id) WHERE transaction_id IS NOT NULL;
CREATE TRIGGER audit_ordered AFTER INSERT ON payment_intents FOR EACH ROW
EXECUTE FUNCTION audit_row('topup.ordered', 'payment', 'id', 'purpose', 'amount_nano', 'description');

CREATE TABLE payment_refunds (
  id text PRIMARY KEY,
  organization_id text NOT NULL
    CONSTRAINT payment_refunds_organization_id_organizations_id_fk REFERENCES organizations,
  intent_id text NOT NULL CONSTRAINT payment_refunds_intent_id_payment_intents_id_fk REFERENCES payment_intents,
  order_id text NOT NULL,
  asked_nano bigint,
  amount_nano bigint NOT NULL,
  state text NOT NULL DEFAULT 'ordered',
  transaction_id text,
  returned_transaction_id text,
  reference text,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  busy_until timestamptz NOT NULL,
  looks integer NOT NULL DEFAULT 0,
  next_look_at timestamptz NOT NULL
);
CREATE INDEX payment_refunds_of_intent ON payment_refunds (intent_id);
CREATE INDEX payment_refunds_open ON payment_refunds (next_look_at) WHERE state IN ('ordered', 'pending');

CREATE TABLE payment_reversals (
  id text PRIMARY KEY,
  organization_id text NOT NULL
    CONSTRAINT payment_reversals_organization_id_organizations_id_fk REFERENCES organizations,
  intent_id text NOT NULL CONSTRAINT payment_reversals_intent_id_payment_intents_id_fk REFERENCES payment_intents,
  kind text NOT NULL,
  amount_nano bigint NOT NULL,
  state text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  is_settled boolean NOT NULL DEFAULT false,
  looks integer NOT NULL DEFAULT 0,
  next_look_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX payment_reversals_of_intent ON payment_reversals (intent_id);
CREATE INDEX payment_reversals_unsettled ON payment_reversals (next_look_at) WHERE NOT is_settled;

-- Automatic top-ups

CREATE TABLE auto_replenish (
  organization_id text PRIMARY KEY
    CONSTRAINT auto_replenish_organization_id_organizations_id_fk REFERENCES organizations,
  is_enabled boolean NOT NULL DEFAULT false,
  threshold_nano bigint NOT NULL DEFAULT 0,
  amount_nano bigint NOT NULL DEFAULT 0,
  method_id text,
  crossings bigint NOT NULL DEFAULT 0,
  ordered_crossings bigint NOT NULL DEFAULT 0,
  intent_id text,
  declines integer NOT NULL DEFAULT 0,
  due_at timestamptz
);
CREATE INDEX auto_replenish_due ON auto_replenish (due_at) WHERE due_at IS NOT NULL;
CREATE TRIGGER audit_stopped AFTER UPDATE OF declines ON auto_replenish FOR EACH ROW
WHEN (OLD.declines < 3 AND NEW.declines >= 3)
EXECUTE FUNCTION audit_row('auto_replenish.stopped', 'organization', 'organization_id', 'declines');
CREATE TRIGGER audit_updated AFTER UPDATE OF is_enabled, threshold_nano, amount_nano, method_id ON auto_replenish
FOR EACH ROW EXECUTE FUNCTION audit_row('auto_replenish.updated', 'organization', 'organization_id',
  'is_enabled=auto_replenish', 'threshold_nano', 'amount_nano', 'method_id=payment_method_id');

-- Plan subscriptions

CREATE TABLE plan_subscriptions (
  organization_id text PRIMARY KEY
    CONSTRAINT plan_subscriptions_organization_id_organizations_id_fk REFERENCES organizations,
  id text NOT NULL,
  processor text NOT NULL,
  plan text NOT NULL,
  next_plan text,
  reference text,
  customer text,
  method text NOT NULL,
  state text NOT NULL DEFAULT 'pending',
  invoice_url text,
  period_start timestamptz,
  period_end timestamptz,
  version bigint NOT NULL DEFAULT 0,
  next_look_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  author jsonb DEFAULT nullif(current_setting('gateway.author', true), '')::jsonb
);
CREATE INDEX plan_subscriptions_due ON plan_subscriptions (next_look_at) WHERE next_look_at IS NOT NULL;
CREATE INDEX plan_subscriptions_reference ON plan_subscriptions (processor, reference);
CREATE TRIGGER audit_created AFTER INSERT ON plan_subscriptions FOR EACH ROW
EXECUTE FUNCTION audit_row('subscription.created', 'subscription', 'id', 'plan', 'state');
CREATE TRIGGER audit_updated AFTER UPDATE OF id, plan, next_plan, state ON plan_subscriptions FOR EACH ROW
EXECUTE FUNCTION audit_row('subscription.updated', 'subscription', 'id', 'plan', 'next_plan', 'state');

-- Usage

CREATE TABLE usage_cursors (
  organization_id text PRIMARY KEY,
  sequence bigint NOT NULL DEFAULT 0,
  new_subjects integer NOT NULL DEFAULT 0,
  totals_since timestamptz NOT NULL DEFAULT '-infinity'
);
CREATE INDEX usage_cursors_lacking ON usage_cursors (organization_id) WHERE totals_since > '-infinity';

CREATE TABLE usage_rollups (
  organization_id text NOT NULL,
  grain text NOT NULL,
  key_id text NOT NULL,
  starts_at timestamptz NOT NULL,
  model text NOT NULL,
  provider text NOT NULL,
  requests bigint NOT NULL,
  errors bigint NOT NULL,
  prompt_tokens bigint NOT NULL,
  completion_tokens bigint NOT NULL,
  cached_tokens bigint NOT NULL,
  reasoning_tokens bigint NOT NULL,
  images bigint NOT NULL,
  characters bigint NOT NULL,
  duration_ms bigint NOT NULL,
  cost_nano bigint NOT NULL,
  search_units bigint NOT NULL DEFAULT 0,
  CONSTRAINT usage_rollups_pk PRIMARY KEY (organization_id, grain, key_id, starts_at, model, provider)
);
CREATE INDEX usage_rollups_time ON usage_rollups (organization_id, grain, starts_at);

CREATE TABLE usage_subjects (
  organization_id text NOT NULL,
  kind text NOT NULL,
  day date NOT NULL,
  value text NOT NULL,
  key_id text NOT NULL,
  model text NOT NULL,
  provider text NOT NULL,
  requests bigint NOT NULL,
  errors bigint NOT NULL,
  prompt_tokens bigint NOT NULL,
  completion_tokens bigint NOT NULL,
  cached_tokens bigint NOT NULL,
  reasoning_tokens bigint NOT NULL,
  images bigint NOT NULL,
  characters bigint NOT NULL,
  duration_ms bigint NOT NULL,
  cost_nano bigint NOT NULL,
  search_units bigint NOT NULL DEFAULT 0,
  CONSTRAINT usage_subjects_pk PRIMARY KEY (organization_id, kind, day, value, key_id, model, provider)
);

CREATE TABLE usage_totals (
  organization_id text NOT NULL,
  kind text NOT NULL,
  starts_at timestamptz NOT NULL,
  value text NOT NULL,
  requests bigint NOT NULL,
  errors bigint NOT NULL,
  prompt_tokens bigint NOT NULL,
  completion_tokens bigint NOT NULL,
  cached_tokens bigint NOT NULL,
  reasoning_tokens bigint NOT NULL,
  images bigint NOT NULL,
  characters bigint NOT NULL,
  duration_ms bigint NOT NULL,
  search_units bigint NOT NULL DEFAULT 0,
  cost_nano bigint NOT NULL,
  CONSTRAINT usage_totals_pk PRIMARY KEY (organization_id, kind, starts_at, value)
);
CREATE INDEX usage_totals_cost ON usage_totals (organization_id, kind, starts_at, cost_nano)
  WHERE kind IN ('user', 'tag');

CREATE TABLE usage_latencies (
  organization_id text NOT NULL,
  measure text NOT NULL,
  hour timestamptz NOT NULL,
  bucket smallint NOT NULL,
  requests bigint NOT NULL,
  CONSTRAINT usage_latencies_pk PRIMARY KEY (organization_id, measure, hour, bucket)
);

-- Failed requests

CREATE TABLE failed_requests (
  id text NOT NULL,
  organization_id text NOT NULL,
  key_id text NOT NULL,
  position bigint NOT NULL,
  model text,
  provider text,
  status integer NOT NULL,
  error_code text NOT NULL,
  user_name text,
  session_id text,
  latency_ms integer NOT NULL,
  is_charged boolean NOT NULL,
  created_at timestamptz(3) NOT NULL,
  tags jsonb,
  usage_state smallint NOT NULL DEFAULT 0,
  queue_ms integer,
  routing jsonb,
  CONSTRAINT failed_requests_id_pk PRIMARY KEY (id)
);
CREATE INDEX failed_requests_list ON failed_requests (organization_id, position, created_at, id) WHERE NOT is_charged;
CREATE INDEX failed_requests_new ON failed_requests (organization_id) WHERE usage_state = 0;
CREATE INDEX failed_requests_of_key ON failed_requests (organization_id, key_id, position, created_at, id)
  WHERE NOT is_charged;
CREATE INDEX failed_requests_removal ON failed_requests (created_at);

-- Events and webhooks

CREATE TABLE outbox (
  id bigserial PRIMARY KEY,
  event_id text NOT NULL CONSTRAINT outbox_event_id_unique UNIQUE,
  organization_id text NOT NULL,
  type text NOT NULL,
  data jsonb NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  xid xid8 NOT NULL DEFAULT pg_current_xact_id()
);
CREATE INDEX outbox_age ON outbox USING brin (created_at);
CREATE TRIGGER outbox_tell AFTER INSERT ON outbox
REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION tell_of_events();

CREATE TABLE unnumbered_events (
  organization_id text NOT NULL,
  outbox_id bigint NOT NULL,
  CONSTRAINT unnumbered_events_organization_id_outbox_id_pk PRIMARY KEY (organization_id, outbox_id)
);

CREATE TABLE event_queues (
  organization_id text PRIMARY KEY,
  last_sequence bigint NOT NULL DEFAULT 0,
  partial_event bigint,
  partial_webhook text
);

CREATE TABLE webhooks (
  id text PRIMARY KEY,
  organization_id text NOT NULL CONSTRAINT webhooks_organization_id_organizations_id_fk REFERENCES organizations,
  url text NOT NULL,
  events text[] NOT NULL,
  description text,
  enabled boolean NOT NULL,
  secret bytea NOT NULL,
  previous_secret bytea,
  previous_secret_until timestamptz,
  created_at timestamptz NOT NULL,
  disabled_at timestamptz,
  disabled_by text,
  version bigint NOT NULL DEFAULT 1,
  delivery_id_key uuid NOT NULL DEFAULT gen_random_uuid(),
  plain_delivery_ids_up_to bigint NOT NULL DEFAULT 0
);
CREATE INDEX webhooks_listing ON webhooks (organization_id, created_at, id);
CREATE INDEX webhooks_numbering ON webhooks (organization_id, id);
CREATE TRIGGER audit_created AFTER INSERT ON webhooks FOR EACH ROW
EXECUTE FUNCTION audit_row('webhook.created', 'webhook', 'id', 'url', 'events', 'description', 'enabled');
CREATE TRIGGER audit_deleted AFTER DELETE ON webhooks FOR EACH ROW
EXECUTE FUNCTION audit_row('webhook.deleted', 'webhook', 'id', 'url', 'events', 'description', 'enabled');
CREATE TRIGGER audit_rotated AFTER UPDATE OF previous_secret_until ON webhooks FOR EACH ROW
WHEN (NEW.previous_secret_until IS DISTINCT FROM OLD.previous_secret_until
  AND NEW.previous_secret_until IS NOT NULL)
EXECUTE FUNCTION audit_row('webhook.secret_rotated', 'webhook', 'id');
CREATE TRIGGER audit_updated AFTER UPDATE OF url, events, description, enabled ON webhooks FOR EACH ROW
EXECUTE FUNCTION audit_row('webhook.updated', 'webhook', 'id', 'url', 'events', 'description', 'enabled',
  'disabled_by');

CREATE TABLE webhook_queues (
  webhook_id text PRIMARY KEY
    CONSTRAINT webhook_queues_webhook_id_webhooks_id_fk REFERENCES webhooks ON DELETE CASCADE,
  numbered pg_snapshot NOT NULL DEFAULT pg_current_snapshot(),
  due_at timestamptz,
  organization_id text NOT NULL DEFAULT ''
) WITH (fillfactor = 50);
CREATE INDEX webhook_queues_due ON webhook_queues (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX webhook_queues_work ON webhook_queues (organization_id, due_at) WHERE due_at IS NOT NULL;
CREATE TRIGGER webhook_queues_place BEFORE INSERT ON webhook_queues
FOR EACH ROW EXECUTE FUNCTION place_webhook_queue();

CREATE TABLE deliveries (
  webhook_id text NOT NULL,
  outbox_id bigint NOT NULL,
  sequence bigint NOT NULL,
  event_id text NOT NULL,
  event_type text NOT NULL,
  status text NOT NULL DEFAULT 'pending',
  attempt_count integer NOT NULL DEFAULT 0,
  attempts jsonb NOT NULL DEFAULT '[]',
  next_attempt_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  finished_at timestamptz,
  CONSTRAINT deliveries_webhook_id_outbox_id_pk PRIMARY KEY (webhook_id, outbox_id)
) WITH (fillfactor = 70);
CREATE INDEX deliveries_age ON deliveries USING brin (created_at);
CREATE INDEX deliveries_given_up ON deliveries (webhook_id, status, outbox_id) WHERE status IN ('failed', 'dropped');
CREATE INDEX deliveries_pending ON deliveries (webhook_id, sequence) WHERE status = 'pending';

-- Audit log

CREATE TABLE audit_log (
  id text PRIMARY KEY,
  organization_id text,
  action text NOT NULL,
  object_type text NOT NULL,
  object_id text,
  actor jsonb NOT NULL,
  actor_id text GENERATED ALWAYS AS (actor->>'id') STORED,
  before jsonb,
  after jsonb,
  created_at timestamptz NOT NULL
);
CREATE INDEX audit_log_action ON audit_log (action, id COLLATE "C");
CREATE INDEX audit_log_actor ON audit_log (actor_id, id COLLATE "C");
CREATE INDEX audit_log_age ON audit_log USING brin (created_at);
CREATE INDEX audit_log_all ON audit_log (id COLLATE "C");
CREATE INDEX audit_log_listing ON audit_log (organization_id, id COLLATE "C");
CREATE INDEX audit_log_object ON audit_log (object_id, id COLLATE "C");
CREATE TRIGGER audit_log_keep BEFORE UPDATE OR DELETE ON audit_log
FOR EACH ROW EXECUTE FUNCTION audit_log_keep();
CREATE TRIGGER audit_log_keep_all BEFORE TRUNCATE ON audit_log
FOR EACH STATEMENT EXECUTE FUNCTION audit_log_keep();

-- Provider keys and health

CREATE TABLE provider_keys (
  id text PRIMARY KEY,
  organization_id text NOT NULL CONSTRAINT provider_keys_organization_id_organizations_id_fk REFERENCES organizations,
  provider_id text NOT NULL,
  name text NOT NULL,
  key_prefix text NOT NULL,
  secret bytea NOT NULL,
  base_url text,
  is_valid boolean NOT NULL DEFAULT true,
  created_at timestamptz NOT NULL
);
CREATE INDEX provider_keys_organization ON provider_keys (organization_id);
CREATE TRIGGER audit_created AFTER INSERT ON provider_keys FOR EACH ROW
EXECUTE FUNCTION audit_row('provider_key.created', 'provider_key', 'id', 'provider_id=provider', 'name', 'base_url');
CREATE TRIGGER audit_deleted AFTER DELETE ON provider_keys FOR EACH ROW
EXECUTE FUNCTION audit_row('provider_key.deleted', 'provider_key', 'id', 'provider_id=provider', 'name', 'base_url');
CREATE TRIGGER audit_updated AFTER UPDATE OF name, base_url, is_valid ON provider_keys FOR EACH ROW
EXECUTE FUNCTION audit_row('provider_key.updated', 'provider_key', 'id', 'name', 'base_url', 'is_valid');

CREATE TABLE provider_health (
  provider_id text PRIMARY KEY,
  is_healthy boolean NOT NULL,
  changed_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Presets and guardrails

CREATE TABLE definitions (
  id text PRIMARY KEY,
  organization_id text NOT NULL CONSTRAINT definitions_organization_id_organizations_id_fk REFERENCES organizations,
  kind text NOT NULL,
  name text NOT NULL,
  body jsonb NOT NULL,
  created_at timestamptz NOT NULL,
  updated_at timestamptz NOT NULL
);
CREATE INDEX definitions_listing ON definitions (organization_id, kind, id);
CREATE UNIQUE INDEX definitions_name ON definitions (organization_id, kind, name);
CREATE TRIGGER audit_guardrail_created AFTER INSERT ON definitions FOR EACH ROW WHEN (NEW.kind = 'guardrail')
EXECUTE FUNCTION audit_row('guardrail.created', 'guardrail', 'id', 'name', 'body');
CREATE TRIGGER audit_guardrail_deleted AFTER DELETE ON definitions FOR EACH ROW WHEN (OLD.kind = 'guardrail')
EXECUTE FUNCTION audit_row('guardrail.deleted', 'guardrail', 'id', 'name', 'body');
CREATE TRIGGER audit_guardrail_updated AFTER UPDATE ON definitions FOR EACH ROW WHEN (NEW.kind = 'guardrail')
EXECUTE FUNCTION audit_row('guardrail.updated', 'guardrail', 'id', 'name', 'body');
CREATE TRIGGER audit_preset_created AFTER INSERT ON definitions FOR EACH ROW WHEN (NEW.kind = 'preset')
EXECUTE FUNCTION audit_row('preset.created', 'preset', 'id', 'name', 'body');
CREATE TRIGGER audit_preset_deleted AFTER DELETE ON definitions FOR EACH ROW WHEN (OLD.kind = 'preset')
EXECUTE FUNCTION audit_row('preset.deleted', 'preset', 'id', 'name', 'body');
CREATE TRIGGER audit_preset_updated AFTER UPDATE ON definitions FOR EACH ROW WHEN (NEW.kind = 'preset')
EXECUTE FUNCTION audit_row('preset.updated', 'preset', 'id', 'name', 'body');

CREATE TABLE guardrail_defaults (
  organization_id text NOT NULL
    CONSTRAINT guardrail_defaults_organization_id_organizations_id_fk REFERENCES organizations,
  key_id text NOT NULL,
  guardrail_id text NOT NULL CONSTRAINT guardrail_defaults_guardrail_id_definitions_id_fk REFERENCES definitions,
  CONSTRAINT guardrail_defaults_organization_id_key_id_pk PRIMARY KEY (organization_id, key_id)
);
CREATE INDEX guardrail_defaults_guardrail ON guardrail_defaults (guardrail_id);
CREATE TRIGGER audit_created AFTER INSERT ON guardrail_defaults FOR EACH ROW
EXECUTE FUNCTION audit_row('guardrail.enforced', 'guardrail', 'guardrail_id', 'key_id');
CREATE TRIGGER audit_deleted AFTER DELETE ON guardrail_defaults FOR EACH ROW
EXECUTE FUNCTION audit_row('guardrail.released', 'guardrail', 'guardrail_id', 'key_id');

-- Response cache

CREATE TABLE answer_caches (
  organization_id text PRIMARY KEY
    CONSTRAINT answer_caches_organization_id_organizations_id_fk REFERENCES organizations,
  generation bigint NOT NULL DEFAULT 0,
  entries integer NOT NULL DEFAULT 0,
  bytes bigint NOT NULL DEFAULT 0
);

CREATE TABLE cached_answers (
  organization_id text NOT NULL CONSTRAINT cached_answers_organization_id_organizations_id_fk REFERENCES organizations,
  key_hash text NOT NULL,
  model text NOT NULL,
  provider text NOT NULL,
  cost_nano bigint NOT NULL,
  usage jsonb NOT NULL,
  bytes integer NOT NULL,
  sealed bytea NOT NULL,
  expires_at timestamptz NOT NULL,
  used_at timestamptz NOT NULL,
  headers jsonb NOT NULL DEFAULT '{}',
  CONSTRAINT cached_answers_organization_id_key_hash_pk PRIMARY KEY (organization_id, key_hash)
);
CREATE INDEX cached_answers_expiry ON cached_answers (expires_at);
CREATE INDEX cached_answers_use ON cached_answers (organization_id, used_at);

CREATE TABLE answer_flights (
  organization_id text NOT NULL CONSTRAINT answer_flights_organization_id_organizations_id_fk REFERENCES organizations,
  key_hash text NOT NULL,
  request_id text NOT NULL,
  lease_until timestamptz NOT NULL DEFAULT clock_timestamp(),
  CONSTRAINT answer_flights_organization_id_key_hash_pk PRIMARY KEY (organization_id, key_hash)
);

-- Stored responses and conversations

CREATE TABLE responses (
  id text PRIMARY KEY,
  organization_id text NOT NULL CONSTRAINT responses_organization_id_organizations_id_fk REFERENCES organizations,
  previous_id text,
  chain_id text NOT NULL,
  own_bytes integer NOT NULL DEFAULT 0,
  chain_bytes bigint NOT NULL DEFAULT 0,
  is_kept boolean NOT NULL DEFAULT false,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  remove_after timestamptz NOT NULL
);
CREATE INDEX responses_chain ON responses (chain_id, created_at);
CREATE INDEX responses_removal ON responses (remove_after);

CREATE TABLE background_responses (
  id text PRIMARY KEY CONSTRAINT background_responses_id_responses_id_fk REFERENCES responses ON DELETE CASCADE,
  organization_id text NOT NULL,
  state text NOT NULL DEFAULT 'queued',
  last_sequence integer NOT NULL DEFAULT -1,
  is_cancelling boolean NOT NULL DEFAULT false,
  instance_id text NOT NULL,
  epoch bigint NOT NULL
);
CREATE INDEX background_responses_running ON background_responses (organization_id)
  WHERE state IN ('queued', 'in_progress');

CREATE TABLE conversations (
  id text PRIMARY KEY,
  organization_id text NOT NULL CONSTRAINT conversations_organization_id_organizations_id_fk REFERENCES organizations,
  metadata jsonb NOT NULL,
  last_id text,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX conversations_organization ON conversations (organization_id);

CREATE TABLE removed_items (
  conversation_id text NOT NULL
    CONSTRAINT removed_items_conversation_id_conversations_id_fk REFERENCES conversations ON DELETE CASCADE,
  item_id text NOT NULL,
  CONSTRAINT removed_items_conversation_id_item_id_pk PRIMARY KEY (conversation_id, item_id)
);

CREATE TABLE response_contents (
  response_id text NOT NULL
    CONSTRAINT response_contents_response_id_responses_id_fk REFERENCES responses ON DELETE CASCADE,
  part text NOT NULL,
  sealed bytea NOT NULL,
  CONSTRAINT response_contents_response_id_part_pk PRIMARY KEY (response_id, part)
);

-- Files

CREATE TABLE files (
  id text PRIMARY KEY,
  organization_id text NOT NULL CONSTRAINT files_organization_id_organizations_id_fk REFERENCES organizations,
  filename text NOT NULL,
  purpose text NOT NULL,
  content_type text NOT NULL,
  bytes bigint NOT NULL,
  sha256 text,
  status text NOT NULL,
  status_details text,
  storage_key text,
  created_at timestamptz NOT NULL,
  expires_at timestamptz
);
CREATE INDEX files_expiry ON files (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX files_listing ON files (organization_id, id COLLATE "C");

CREATE TABLE file_usage (
  organization_id text PRIMARY KEY,
  used_bytes bigint NOT NULL DEFAULT 0,
  reserved_bytes bigint NOT NULL DEFAULT 0
);

CREATE TABLE file_uploads (
  storage_key text PRIMARY KEY,
  organization_id text NOT NULL,
  reserved_bytes bigint NOT NULL DEFAULT 0,
  instance_id text NOT NULL,
  epoch bigint NOT NULL,
  renewed_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX file_uploads_age ON file_uploads (renewed_at);

CREATE TABLE file_removals (
  storage_key text PRIMARY KEY,
  due_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  attempts integer NOT NULL DEFAULT 0
);
CREATE INDEX file_removals_due ON file_removals (due_at);

CREATE TABLE file_uses (
  storage_key text NOT NULL,
  holder text NOT NULL,
  file_id text NOT NULL,
  organization_id text NOT NULL,
  bytes bigint NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  CONSTRAINT file_uses_storage_key_holder_pk PRIMARY KEY (storage_key, holder)
);
CREATE INDEX file_uses_holder ON file_uses (holder, file_id);

CREATE TABLE file_stores (
  kind text PRIMARY KEY,
  id text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Batches

CREATE TABLE batches (
  id text PRIMARY KEY,
  organization_id text NOT NULL CONSTRAINT batches_organization_id_organizations_id_fk REFERENCES organizations,
  key_id text NOT NULL,
  endpoint text NOT NULL,
  input_file text NOT NULL,
  status text NOT NULL,
  ends_as text,
  metadata jsonb,
  faults jsonb,
  total integer NOT NULL DEFAULT 0,
  completed integer NOT NULL DEFAULT 0,
  failed integer NOT NULL DEFAULT 0,
  output_file text,
  error_file text,
  created_at timestamptz NOT NULL,
  in_progress_at timestamptz,
  finalizing_at timestamptz,
  ended_at timestamptz,
  cancelling_at timestamptz,
  expires_at timestamptz NOT NULL,
  due_at timestamptz,
  attempts integer NOT NULL DEFAULT 0
);
CREATE INDEX batches_due ON batches (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX batches_listing ON batches (organization_id, id COLLATE "C");

CREATE TABLE batch_lines (
  batch_id text NOT NULL,
  line integer NOT NULL,
  is_failed boolean NOT NULL,
  CONSTRAINT batch_lines_batch_id_line_pk PRIMARY KEY (batch_id, line)
);

CREATE TABLE batch_contents (
  batch_id text NOT NULL,
  part text NOT NULL,
  sealed bytea NOT NULL,
  CONSTRAINT batch_contents_batch_id_part_pk PRIMARY KEY (batch_id, part)
);

CREATE TABLE provider_batches (
  id text PRIMARY KEY,
  batch_id text NOT NULL,
  provider_id text NOT NULL,
  provider_key text,
  model text NOT NULL,
  provider_model text NOT NULL,
  kind text NOT NULL,
  terms text NOT NULL,
  state text NOT NULL,
  requests integer NOT NULL,
  provider_batch text,
  ordered_at timestamptz,
  is_cancelled boolean NOT NULL DEFAULT false
);
CREATE INDEX provider_batches_batch ON provider_batches (batch_id);
CREATE INDEX provider_batches_provider ON provider_batches (provider_id);

CREATE TABLE provider_batch_lines (
  batch_id text NOT NULL,
  line integer NOT NULL,
  provider_batch text,
  request_id text,
  fee_basis_points integer,
  CONSTRAINT provider_batch_lines_batch_id_line_pk PRIMARY KEY (batch_id, line)
);
CREATE INDEX provider_batch_lines_provider_batch ON provider_batch_lines (provider_batch);

-- Fine-tuning

CREATE TABLE fine_tuning_jobs (
  id text PRIMARY KEY,
  request_id text NOT NULL,
  organization_id text NOT NULL
    CONSTRAINT fine_tuning_jobs_organization_id_organizations_id_fk REFERENCES organizations,
  key_id text NOT NULL,
  base_model text NOT NULL,
  provider_id text NOT NULL,
  provider_base_model text NOT NULL,
  training_file text NOT NULL,
  validation_file text,
  suffix text,
  seed integer NOT NULL,
  hyperparameters jsonb NOT NULL,
  metadata jsonb,
  token_femto bigint NOT NULL,
  fee_basis_points integer NOT NULL,
  hold_nano bigint NOT NULL,
  status text NOT NULL DEFAULT 'queued',
  error jsonb,
  fine_tuned_model text,
  file_tokens bigint,
  trained_tokens bigint,
  provider_file text,
  provider_validation_file text,
  provider_job text,
  create_tries integer NOT NULL DEFAULT 0,
  troubles integer NOT NULL DEFAULT 0,
  useless_answers integer NOT NULL DEFAULT 0,
  is_cleaned_up boolean NOT NULL DEFAULT false,
  result_file text,
  event_count integer NOT NULL DEFAULT 0,
  version bigint NOT NULL DEFAULT 1,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  due_at timestamptz DEFAULT clock_timestamp(),
  running_since timestamptz,
  estimated_finish timestamptz,
  finished_at timestamptz
);
CREATE INDEX fine_tuning_jobs_due ON fine_tuning_jobs (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX fine_tuning_jobs_listing ON fine_tuning_jobs (organization_id, created_at, id);

CREATE TABLE fine_tuning_events (
  job_id text NOT NULL,
  sequence integer NOT NULL,
  id text NOT NULL,
  level text NOT NULL,
  message text NOT NULL,
  type text NOT NULL,
  data jsonb NOT NULL,
  provider_event text,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  CONSTRAINT fine_tuning_events_job_id_sequence_pk PRIMARY KEY (job_id, sequence)
);
CREATE UNIQUE INDEX fine_tuning_events_id ON fine_tuning_events (job_id, id);
CREATE UNIQUE INDEX fine_tuning_events_provider ON fine_tuning_events (job_id, provider_event);

CREATE TABLE tuned_models (
  id text PRIMARY KEY,
  organization_id text NOT NULL,
  job_id text NOT NULL CONSTRAINT tuned_models_job_id_unique UNIQUE,
  base_model text NOT NULL,
  suffix text,
  provider_id text NOT NULL,
  provider_model text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  deleted_at timestamptz
);
CREATE INDEX tuned_models_organization ON tuned_models (organization_id) WHERE deleted_at IS NULL;
CREATE TRIGGER audit_deleted AFTER UPDATE OF deleted_at ON tuned_models FOR EACH ROW
WHEN (OLD.deleted_at IS NULL AND NEW.deleted_at IS NOT NULL)
EXECUTE FUNCTION audit_row('model.deleted', 'model', 'id', 'base_model');

CREATE TABLE sandbox_tunings (
  id text PRIMARY KEY,
  file_name text NOT NULL,
  learned text,
  tokens bigint NOT NULL,
  uploaded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  file_deleted_at timestamptz,
  tag text,
  model text,
  epochs integer,
  started_at_ms bigint,
  cancelled_at_ms bigint
);
CREATE INDEX sandbox_tunings_file ON sandbox_tunings (file_name);
CREATE UNIQUE INDEX sandbox_tunings_tag ON sandbox_tunings (tag);

-- Vector stores

CREATE TABLE vector_stores (
  id text PRIMARY KEY,
  number bigint GENERATED ALWAYS AS IDENTITY,
  organization_id text NOT NULL CONSTRAINT vector_stores_organization_id_organizations_id_fk REFERENCES organizations,
  name text,
  description text,
  metadata jsonb,
  expires_after_days integer,
  created_at timestamptz NOT NULL,
  last_active_at timestamptz NOT NULL,
  expires_at timestamptz,
  cleared_at timestamptz
);
CREATE INDEX vector_stores_expiry ON vector_stores (expires_at) WHERE expires_at IS NOT NULL AND cleared_at IS NULL;
CREATE INDEX vector_stores_listing ON vector_stores (organization_id, id COLLATE "C");

CREATE TABLE vector_store_files (
  id text PRIMARY KEY,
  number bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT vector_store_files_number_unique UNIQUE,
  organization_id text NOT NULL,
  vector_store_id text NOT NULL,
  file_id text NOT NULL,
  batch_id text,
  status text NOT NULL,
  error_code text,
  error_message text,
  attributes jsonb NOT NULL,
  max_chunk_tokens integer NOT NULL,
  overlap_tokens integer NOT NULL,
  chunks integer NOT NULL DEFAULT 0,
  usage_bytes bigint NOT NULL DEFAULT 0,
  due_at timestamptz,
  attempts integer NOT NULL DEFAULT 0,
  created_at timestamptz NOT NULL,
  key_id text,
  embedding_model text
);
CREATE INDEX vector_store_files_batch ON vector_store_files (batch_id) WHERE batch_id IS NOT NULL;
CREATE INDEX vector_store_files_due ON vector_store_files (organization_id, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX vector_store_files_file ON vector_store_files (file_id);
CREATE INDEX vector_store_files_listing ON vector_store_files (vector_store_id, id COLLATE "C");
CREATE INDEX vector_store_files_organization ON vector_store_files (organization_id);
CREATE UNIQUE INDEX vector_store_files_present ON vector_store_files (vector_store_id, file_id)
  WHERE status <> 'removed';

CREATE TABLE vector_store_batches (
  id text PRIMARY KEY,
  organization_id text NOT NULL,
  vector_store_id text NOT NULL,
  created_at timestamptz NOT NULL,
  cancelled_at timestamptz
);

-- Stores text and words outside of the rows that a search counts.
CREATE TABLE vector_store_chunks (
  file bigint NOT NULL,
  position integer NOT NULL,
  text text NOT NULL,
  words tsvector NOT NULL,
  length integer NOT NULL,
  CONSTRAINT vector_store_chunks_file_position_pk PRIMARY KEY (file, position)
) WITH (toast_tuple_target = 128);
CREATE INDEX vector_store_chunks_words ON vector_store_chunks USING gin (words) WITH (fastupdate = false);

-- Stores the bytes outside of the rows, because a search reads all signs and few of the bytes.
CREATE TABLE vector_store_vectors (
  file bigint NOT NULL,
  position integer NOT NULL,
  signs bit varying NOT NULL,
  bytes bytea NOT NULL,
  scale real NOT NULL,
  CONSTRAINT vector_store_vectors_file_position_pk PRIMARY KEY (file, position),
  CONSTRAINT vector_store_vectors_chunk_fk FOREIGN KEY (file, position)
    REFERENCES vector_store_chunks ON DELETE CASCADE
) WITH (toast_tuple_target = 128);
ALTER TABLE vector_store_vectors ALTER COLUMN bytes SET STORAGE EXTERNAL;
ALTER TABLE vector_store_vectors ALTER COLUMN signs SET STORAGE PLAIN;

-- Links to media

CREATE TABLE media_links (
  id text PRIMARY KEY,
  organization_id text NOT NULL,
  content_type text NOT NULL,
  bytes bigint NOT NULL,
  expires_at timestamptz NOT NULL
);
CREATE INDEX media_links_expiry ON media_links (expires_at);

-- Search of the catalogue

CREATE TABLE catalogue_search (
  model_id text PRIMARY KEY,
  title text NOT NULL,
  origin text NOT NULL,
  description text NOT NULL,
  document tsvector GENERATED ALWAYS AS (
    setweight(to_tsvector('simple', title), 'A') || setweight(to_tsvector('simple', origin), 'B')
    || setweight(to_tsvector('simple', description) || to_tsvector('english', description), 'C')) STORED
);
CREATE INDEX catalogue_document ON catalogue_search USING gin (document);

-- Dashboard sessions

CREATE TABLE dashboard_sessions (
  token_hash text PRIMARY KEY,
  kind text NOT NULL,
  key_id text NOT NULL,
  created_at timestamptz NOT NULL,
  last_used_at timestamptz NOT NULL,
  subject jsonb
);
CREATE INDEX dashboard_sessions_age ON dashboard_sessions (created_at);
CREATE INDEX dashboard_sessions_of_key ON dashboard_sessions (key_id, created_at);
