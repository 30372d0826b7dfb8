CREATE TABLE "audit_log" (
	"id" text PRIMARY KEY NOT NULL,
	"organization_id" text,
	"action" text NOT NULL,
	"object_type" text NOT NULL,
	"object_id" text,
	"actor" jsonb NOT NULL,
	"actor_id" text GENERATED ALWAYS AS (actor->>'id') STORED,
	"before" jsonb,
	"after" jsonb,
	"created_at" timestamp with time zone NOT NULL
);
--> statement-breakpoint
ALTER TABLE "credit_commands" ADD COLUMN "author" jsonb DEFAULT nullif(current_setting('gateway.author', true), '')::jsonb;--> statement-breakpoint
ALTER TABLE "credit_commands" ADD COLUMN "limit_before_nano" bigint;--> statement-breakpoint
CREATE INDEX "audit_log_listing" ON "audit_log" USING btree ("organization_id","id" COLLATE "C");--> statement-breakpoint
CREATE INDEX "audit_log_all" ON "audit_log" USING btree ("id" COLLATE "C");--> statement-breakpoint
CREATE INDEX "audit_log_object" ON "audit_log" USING btree ("object_id","id" COLLATE "C");--> statement-breakpoint
CREATE INDEX "audit_log_actor" ON "audit_log" USING btree ("actor_id","id" COLLATE "C");--> statement-breakpoint
CREATE INDEX "audit_log_action" ON "audit_log" USING btree ("action","id" COLLATE "C");--> statement-breakpoint
CREATE INDEX "audit_log_age" ON "audit_log" USING brin ("created_at");--> statement-breakpoint
-- Only rows that have been kept for as many days as the transaction that removes them states can be removed.
CREATE FUNCTION audit_log_keep() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'DELETE' AND OLD.created_at < clock_timestamp() - make_interval(
    days => greatest(1, nullif(current_setting('gateway.audit_log_days', true), '')::integer))
  THEN
    RETURN OLD;
  END IF;
  RAISE EXCEPTION 'entries of the audit log are neither changed nor deleted' USING ERRCODE = '42501';
END $$;--> statement-breakpoint
CREATE TRIGGER audit_log_keep BEFORE UPDATE OR DELETE ON audit_log
FOR EACH ROW EXECUTE FUNCTION audit_log_keep();--> statement-breakpoint
CREATE TRIGGER audit_log_keep_all BEFORE TRUNCATE ON audit_log
FOR EACH STATEMENT EXECUTE FUNCTION audit_log_keep();--> statement-breakpoint
-- The author is the one that the transaction, or the session, states as gateway.author; otherwise the gateway itself.
CREATE FUNCTION record_act(p_organization text, p_action text, p_type text, p_id text, p_before jsonb,
  p_after jsonb, p_author jsonb DEFAULT nullif(current_setting('gateway.author', true), '')::jsonb)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_now timestamptz := clock_timestamp();
  v_micros bigint := extract(epoch FROM v_now) * 1000000;
BEGIN
  INSERT INTO audit_log (id, organization_id, action, object_type, object_id, actor, before, after, created_at)
  VALUES ('act_' || lpad(to_hex(v_micros / 1000), 12, '0') || lpad(to_hex(v_micros % 1000), 3, '0')
      || right(replace(gen_random_uuid()::text, '-', ''), 17),
    p_organization, p_action, p_type, p_id,
    coalesce(p_author, '{"kind": "system", "id": null, "name": null}'), p_before, p_after, v_now);
END $$;--> statement-breakpoint
-- The named columns of a row, as the API calls and writes them: `column`, or `column=name`. Amounts are in USD;
-- a body's members stand for the body; of a URL the query, which may hold a secret, is left out.
CREATE FUNCTION audited_fields(p_row jsonb, p_columns text[]) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
  SELECT coalesce(jsonb_object_agg(name, value), '{}') FROM (
    SELECT regexp_replace(coalesce(nullif(split_part(c, '=', 2), ''), c), '_nano$', '_usd') AS name,
      CASE
        WHEN p_row->split_part(c, '=', 1) = 'null' THEN 'null'
        WHEN c LIKE '%\_nano' THEN
          to_jsonb(trim_scale((p_row->>c)::numeric * 0.000000001))
        WHEN c LIKE '%url' THEN to_jsonb(regexp_replace(p_row->>c, '[?#].*$', '?…'))
        ELSE p_row->split_part(c, '=', 1)
      END AS value
    FROM unnest(p_columns) AS c WHERE c <> 'body'
    UNION ALL
    SELECT key, jsonb_each.value FROM jsonb_each(p_row->'body') WHERE 'body' = ANY (p_columns)
  ) fields
$$;--> statement-breakpoint
-- Arguments: action, type of the object, the column of its id (empty: it has none), then the columns that are shown.
-- What changes none of these is no act, unless the action is another one than `updated`.
CREATE FUNCTION audit_row() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  v_action text := TG_ARGV[0];
  v_old jsonb := to_jsonb(OLD);
  v_new jsonb := to_jsonb(NEW);
  v_row jsonb := coalesce(v_new, v_old);
  v_before jsonb;
  v_after jsonb;
BEGIN
  IF v_old IS NOT NULL THEN v_before := audited_fields(v_old, TG_ARGV[3:]); END IF;
  IF v_new IS NOT NULL AND v_action NOT LIKE '%.deleted' THEN
    v_after := audited_fields(v_new, TG_ARGV[3:]);
  END IF;
  IF v_before IS NOT NULL AND v_after IS NOT NULL THEN
    SELECT coalesce(jsonb_object_agg(name, v_before->name) FILTER (WHERE v_before ? name), '{}'),
      coalesce(jsonb_object_agg(name, v_after->name) FILTER (WHERE v_after ? name), '{}')
    INTO v_before, v_after
    FROM jsonb_object_keys(v_before || v_after) AS name
    WHERE v_before->name IS DISTINCT FROM v_after->name;
    IF v_before = '{}' AND v_after = '{}' AND v_action LIKE '%.updated' THEN RETURN NULL; END IF;
  ELSE
    v_before := (SELECT jsonb_object_agg(key, value) FROM jsonb_each(v_before) WHERE value <> 'null');
    v_after := (SELECT jsonb_object_agg(key, value) FROM jsonb_each(v_after) WHERE value <> 'null');
  END IF;
  PERFORM record_act(
    CASE TG_TABLE_NAME WHEN 'organizations' THEN v_row->>'id' ELSE v_row->>'organization_id' END,
    v_action, TG_ARGV[1], v_row->>TG_ARGV[2], nullif(v_before, '{}'), nullif(v_after, '{}'));
  RETURN NULL;
END $$;--> statement-breakpoint
CREATE TRIGGER audit_created AFTER INSERT ON organizations FOR EACH ROW
EXECUTE FUNCTION audit_row('organization.created', 'organization', 'id', 'name', 'plan');--> statement-breakpoint
CREATE TRIGGER audit_updated AFTER UPDATE OF name, fee_basis_points, file_quota_bytes, max_keys, max_webhooks,
  may_use_computer ON organizations FOR EACH ROW
EXECUTE FUNCTION audit_row('organization.updated', 'organization', 'id', 'name', 'fee_basis_points',
  'file_quota_bytes', 'max_keys', 'max_webhooks', 'may_use_computer=computer_use');--> statement-breakpoint
CREATE TRIGGER audit_plan AFTER UPDATE OF plan ON organizations FOR EACH ROW
WHEN (OLD.plan <> NEW.plan) EXECUTE FUNCTION audit_row('plan.changed', 'organization', 'id', 'plan');--> statement-breakpoint
CREATE TRIGGER audit_suspended AFTER UPDATE OF suspended_at ON organizations FOR EACH ROW
WHEN (OLD.suspended_at IS NULL AND NEW.suspended_at IS NOT NULL)
EXECUTE FUNCTION audit_row('organization.suspended', 'organization', 'id', 'suspended_reason=reason');--> statement-breakpoint
CREATE TRIGGER audit_resumed AFTER UPDATE OF suspended_at ON organizations FOR EACH ROW
WHEN (OLD.suspended_at IS NOT NULL AND NEW.suspended_at IS NULL)
EXECUTE FUNCTION audit_row('organization.resumed', 'organization', 'id', 'suspended_reason=reason');--> statement-breakpoint
CREATE TRIGGER audit_created AFTER INSERT ON api_keys FOR EACH ROW
EXECUTE FUNCTION audit_row('key.created', 'key', 'id', 'kind', 'name', 'key_prefix', 'scopes', 'rate_limit_rpm',
  'rate_limit_tpm', 'daily_budget_nano', 'monthly_budget_nano', 'budget_includes_byok', 'allowed_models', 'expires_at',
  'is_active');--> statement-breakpoint
CREATE TRIGGER audit_updated AFTER UPDATE OF name, key_prefix, scopes, rate_limit_rpm, rate_limit_tpm,
  daily_budget_nano, monthly_budget_nano, budget_includes_byok, allowed_models, expires_at, is_active ON api_keys
FOR EACH ROW WHEN (NEW.deleted_at IS NULL)
EXECUTE FUNCTION audit_row('key.updated', 'key', 'id', 'name', 'key_prefix', 'scopes', 'rate_limit_rpm',
  'rate_limit_tpm', 'daily_budget_nano', 'monthly_budget_nano', 'budget_includes_byok', 'allowed_models', 'expires_at',
  'is_active');--> statement-breakpoint
CREATE TRIGGER audit_deleted AFTER UPDATE OF deleted_at ON api_keys FOR EACH ROW
WHEN (OLD.deleted_at IS NULL AND NEW.deleted_at IS NOT NULL)
EXECUTE FUNCTION audit_row('key.deleted', 'key', 'id', 'kind', 'name', 'key_prefix', 'scopes', 'rate_limit_rpm',
  'rate_limit_tpm', 'daily_budget_nano', 'monthly_budget_nano', 'allowed_models', 'expires_at', 'is_active');--> statement-breakpoint
CREATE TRIGGER audit_created AFTER INSERT ON operator_keys FOR EACH ROW
EXECUTE FUNCTION audit_row('operator_key.created', 'operator_key', 'id', 'name', 'key_prefix');--> statement-breakpoint
CREATE TRIGGER audit_deleted AFTER UPDATE OF revoked_at ON operator_keys FOR EACH ROW
WHEN (OLD.revoked_at IS NULL AND NEW.revoked_at IS NOT NULL)
EXECUTE FUNCTION audit_row('operator_key.deleted', 'operator_key', 'id', 'name', 'key_prefix');--> statement-breakpoint
CREATE TRIGGER audit_rotated AFTER UPDATE OF key_id ON master_key FOR EACH ROW
WHEN (OLD.key_id <> NEW.key_id)
EXECUTE FUNCTION audit_row('master_key.rotated', 'master_key', '');--> statement-breakpoint
CREATE TRIGGER audit_created AFTER INSERT ON subject_budgets FOR EACH ROW
EXECUTE FUNCTION audit_row('budget.created', 'budget', 'id', 'subject_type', 'subject_value', 'daily_budget_nano',
  'monthly_budget_nano');--> statement-breakpoint
CREATE TRIGGER audit_updated AFTER UPDATE ON subject_budgets FOR EACH ROW
EXECUTE FUNCTION audit_row('budget.updated', 'budget', 'id', 'daily_budget_nano', 'monthly_budget_nano');--> statement-breakpoint
CREATE TRIGGER audit_deleted AFTER DELETE ON subject_budgets FOR EACH ROW
EXECUTE FUNCTION audit_row('budget.deleted', 'budget', 'id', 'subject_type', 'subject_value', 'daily_budget_nano',
  'monthly_budget_nano');--> statement-breakpoint
CREATE TRIGGER audit_created AFTER INSERT ON webhooks FOR EACH ROW
EXECUTE FUNCTION audit_row('webhook.created', 'webhook', 'id', 'url', 'events', 'description', 'enabled');--> statement-breakpoint
CREATE TRIGGER audit_updated AFTER UPDATE OF url, events, description, enabled ON webhooks FOR EACH ROW
EXECUTE FUNCTION audit_row('webhook.updated', 'webhook', 'id', 'url', 'events', 'description', 'enabled',
  'disabled_by');--> statement-breakpoint
CREATE TRIGGER audit_rotated AFTER UPDATE OF previous_secret_until ON webhooks FOR EACH ROW
WHEN (NEW.previous_secret_until IS DISTINCT FROM OLD.previous_secret_until
  AND NEW.previous_secret_until IS NOT NULL)
EXECUTE FUNCTION audit_row('webhook.secret_rotated', 'webhook', 'id');--> statement-breakpoint
CREATE TRIGGER audit_deleted AFTER DELETE ON webhooks FOR EACH ROW
EXECUTE FUNCTION audit_row('webhook.deleted', 'webhook', 'id', 'url', 'events', 'description', 'enabled');--> statement-breakpoint
CREATE TRIGGER audit_preset_created AFTER INSERT ON definitions FOR EACH ROW WHEN (NEW.kind = 'preset')
EXECUTE FUNCTION audit_row('preset.created', 'preset', 'id', 'name', 'body');--> statement-breakpoint
CREATE TRIGGER audit_preset_updated AFTER UPDATE ON definitions FOR EACH ROW WHEN (NEW.kind = 'preset')
EXECUTE FUNCTION audit_row('preset.updated', 'preset', 'id', 'name', 'body');--> statement-breakpoint
CREATE TRIGGER audit_preset_deleted AFTER DELETE ON definitions FOR EACH ROW WHEN (OLD.kind = 'preset')
EXECUTE FUNCTION audit_row('preset.deleted', 'preset', 'id', 'name', 'body');--> statement-breakpoint
CREATE TRIGGER audit_guardrail_created AFTER INSERT ON definitions FOR EACH ROW WHEN (NEW.kind = 'guardrail')
EXECUTE FUNCTION audit_row('guardrail.created', 'guardrail', 'id', 'name', 'body');--> statement-breakpoint
CREATE TRIGGER audit_guardrail_updated AFTER UPDATE ON definitions FOR EACH ROW WHEN (NEW.kind = 'guardrail')
EXECUTE FUNCTION audit_row('guardrail.updated', 'guardrail', 'id', 'name', 'body');--> statement-breakpoint
CREATE TRIGGER audit_guardrail_deleted AFTER DELETE ON definitions FOR EACH ROW WHEN (OLD.kind = 'guardrail')
EXECUTE FUNCTION audit_row('guardrail.deleted', 'guardrail', 'id', 'name', 'body');--> statement-breakpoint
CREATE TRIGGER audit_created AFTER INSERT ON guardrail_defaults FOR EACH ROW
EXECUTE FUNCTION audit_row('guardrail.enforced', 'guardrail', 'guardrail_id', 'key_id');--> statement-breakpoint
CREATE TRIGGER audit_deleted AFTER DELETE ON guardrail_defaults FOR EACH ROW
EXECUTE FUNCTION audit_row('guardrail.released', 'guardrail', 'guardrail_id', 'key_id');--> statement-breakpoint
CREATE TRIGGER audit_created AFTER INSERT ON provider_keys FOR EACH ROW
EXECUTE FUNCTION audit_row('provider_key.created', 'provider_key', 'id', 'provider_id=provider', 'name', 'base_url');--> statement-breakpoint
CREATE TRIGGER audit_updated AFTER UPDATE OF name, base_url, is_valid ON provider_keys FOR EACH ROW
EXECUTE FUNCTION audit_row('provider_key.updated', 'provider_key', 'id', 'name', 'base_url', 'is_valid');--> statement-breakpoint
CREATE TRIGGER audit_deleted AFTER DELETE ON provider_keys FOR EACH ROW
EXECUTE FUNCTION audit_row('provider_key.deleted', 'provider_key', 'id', 'provider_id=provider', 'name', 'base_url');--> statement-breakpoint
CREATE TRIGGER audit_deleted AFTER UPDATE OF deleted_at ON tuned_models FOR EACH ROW
WHEN (OLD.deleted_at IS NULL AND NEW.deleted_at IS NOT NULL)
EXECUTE FUNCTION audit_row('model.deleted', 'model', 'id', 'base_model');--> statement-breakpoint
CREATE TRIGGER audit_created AFTER INSERT ON payment_methods FOR EACH ROW
EXECUTE FUNCTION audit_row('payment_method.created', 'payment_method', 'id', 'processor', 'state', 'type', 'brand',
  'last4', 'is_default');--> statement-breakpoint
CREATE TRIGGER audit_updated AFTER UPDATE OF state, type, brand, last4, is_default ON payment_methods FOR EACH ROW
WHEN (NEW.state <> 'detached')
EXECUTE FUNCTION audit_row('payment_method.updated', 'payment_method', 'id', 'state', 'type', 'brand', 'last4',
  'is_default');--> statement-breakpoint
CREATE TRIGGER audit_detached AFTER UPDATE OF state ON payment_methods FOR EACH ROW
WHEN (OLD.state <> 'detached' AND NEW.state = 'detached')
EXECUTE FUNCTION audit_row('payment_method.deleted', 'payment_method', 'id', 'type', 'brand', 'last4');--> statement-breakpoint
CREATE TRIGGER audit_deleted AFTER DELETE ON payment_methods FOR EACH ROW
EXECUTE FUNCTION audit_row('payment_method.deleted', 'payment_method', 'id', 'state');--> statement-breakpoint
CREATE TRIGGER audit_ordered AFTER INSERT ON payment_intents FOR EACH ROW
EXECUTE FUNCTION audit_row('topup.ordered', 'payment', 'id', 'purpose', 'amount_nano', 'description');--> statement-breakpoint
CREATE TRIGGER audit_updated AFTER UPDATE OF is_enabled, threshold_nano, amount_nano, method_id ON auto_replenish
FOR EACH ROW EXECUTE FUNCTION audit_row('auto_replenish.updated', 'organization', 'organization_id',
  'is_enabled=auto_replenish', 'threshold_nano', 'amount_nano', 'method_id=payment_method_id');--> statement-breakpoint
-- After so many declines in a row nothing is ordered any more (MAX_REPLENISH_DECLINES).
CREATE TRIGGER audit_stopped AFTER UPDATE OF declines ON auto_replenish FOR EACH ROW
WHEN (OLD.declines < 3 AND NEW.declines >= 3)
EXECUTE FUNCTION audit_row('auto_replenish.stopped', 'organization', 'organization_id', 'declines');--> statement-breakpoint
CREATE TRIGGER audit_created AFTER INSERT ON plan_subscriptions FOR EACH ROW
EXECUTE FUNCTION audit_row('subscription.created', 'subscription', 'id', 'plan', 'state');--> statement-breakpoint
CREATE TRIGGER audit_updated AFTER UPDATE OF id, plan, next_plan, state ON plan_subscriptions FOR EACH ROW
EXECUTE FUNCTION audit_row('subscription.updated', 'subscription', 'id', 'plan', 'next_plan', 'state');--> statement-breakpoint
CREATE FUNCTION note_credit_limit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  SELECT credit_limit_nano INTO NEW.limit_before_nano FROM accounts
  WHERE id = 'org:' || NEW.organization_id;
  RETURN NEW;
END $$;--> statement-breakpoint
CREATE TRIGGER note_credit_limit BEFORE UPDATE OF done_at ON credit_commands FOR EACH ROW
WHEN (NEW.kind = 'credit-limit' AND NEW.done_at IS NOT NULL) EXECUTE FUNCTION note_credit_limit();--> statement-breakpoint
-- At the end of the transaction, when it stands whether the order was refused.
CREATE FUNCTION audit_credit_command() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  v_order credit_commands;
  v_transaction transactions;
BEGIN
  SELECT * INTO v_order FROM credit_commands WHERE id = NEW.id AND refused_code IS NULL;
  IF NOT FOUND THEN RETURN NULL; END IF;
  IF v_order.kind = 'credit-limit' THEN
    PERFORM record_act(v_order.organization_id, 'organization.updated', 'organization',
      v_order.organization_id,
      jsonb_build_object('credit_limit_usd', trim_scale(v_order.limit_before_nano * 0.000000001)),
      jsonb_build_object('credit_limit_usd', trim_scale(v_order.credit_limit_nano * 0.000000001)),
      v_order.author);
    RETURN NULL;
  END IF;
  SELECT * INTO v_transaction FROM transactions
  WHERE organization_id = v_order.organization_id AND id = v_order.transaction_id;
  PERFORM record_act(v_order.organization_id,
    CASE v_order.kind WHEN 'refund' THEN 'credits.refunded' ELSE 'credits.adjusted' END,
    'transaction', v_order.transaction_id, NULL,
    jsonb_build_object('amount_usd', trim_scale(v_transaction.amount_nano * 0.000000001),
      'balance_after_usd', trim_scale(v_transaction.balance_after_nano * 0.000000001),
      'description', v_transaction.description),
    v_order.author);
  RETURN NULL;
END $$;--> statement-breakpoint
CREATE CONSTRAINT TRIGGER audit_credit_command AFTER INSERT OR UPDATE OF done_at ON credit_commands
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
WHEN (NEW.done_at IS NOT NULL) EXECUTE FUNCTION audit_credit_command();
