-- Audit entries of whole objects show every column, without those that audited_fields hides. A column that a later
-- migration adds is shown without a change of these triggers.

-- Instances cannot send heartbeats while this transaction runs, so it waits for locks a short time only.
SET LOCAL lock_timeout = '1s';

-- Comes first, because every transaction of an instance locks this table first.
LOCK TABLE instances IN EXCLUSIVE MODE;

CREATE OR REPLACE TRIGGER audit_updated AFTER UPDATE ON organizations FOR EACH ROW
WHEN (OLD.key_count = NEW.key_count)
EXECUTE FUNCTION audit_row('organization.updated', 'organization', 'id', '*', '-plan', '-suspended_reason',
  'may_use_computer=computer_use');

CREATE OR REPLACE TRIGGER audit_created AFTER INSERT ON api_keys FOR EACH ROW
EXECUTE FUNCTION audit_row('key.created', 'key', 'id', '*');
CREATE OR REPLACE TRIGGER audit_deleted AFTER UPDATE OF deleted_at ON api_keys FOR EACH ROW
WHEN (OLD.deleted_at IS NULL AND NEW.deleted_at IS NOT NULL)
EXECUTE FUNCTION audit_row('key.deleted', 'key', 'id', '*');
CREATE OR REPLACE TRIGGER audit_updated AFTER UPDATE ON api_keys FOR EACH ROW
WHEN (NEW.deleted_at IS NULL AND NEW.last_used_at IS NOT DISTINCT FROM OLD.last_used_at)
EXECUTE FUNCTION audit_row('key.updated', 'key', 'id', '*');

CREATE OR REPLACE TRIGGER audit_created AFTER INSERT ON operator_keys FOR EACH ROW
EXECUTE FUNCTION audit_row('operator_key.created', 'operator_key', 'id', '*');
CREATE OR REPLACE TRIGGER audit_deleted AFTER UPDATE OF revoked_at ON operator_keys FOR EACH ROW
WHEN (OLD.revoked_at IS NULL AND NEW.revoked_at IS NOT NULL)
EXECUTE FUNCTION audit_row('operator_key.deleted', 'operator_key', 'id', '*');

CREATE OR REPLACE TRIGGER audit_created AFTER INSERT ON subject_budgets FOR EACH ROW
EXECUTE FUNCTION audit_row('budget.created', 'budget', 'id', '*');
CREATE OR REPLACE TRIGGER audit_deleted AFTER DELETE ON subject_budgets FOR EACH ROW
EXECUTE FUNCTION audit_row('budget.deleted', 'budget', 'id', '*');
CREATE OR REPLACE TRIGGER audit_updated AFTER UPDATE ON subject_budgets FOR EACH ROW
EXECUTE FUNCTION audit_row('budget.updated', 'budget', 'id', '*');

CREATE OR REPLACE TRIGGER audit_created AFTER INSERT ON payment_methods FOR EACH ROW
EXECUTE FUNCTION audit_row('payment_method.created', 'payment_method', 'id', '*');
CREATE OR REPLACE TRIGGER audit_updated AFTER UPDATE ON payment_methods FOR EACH ROW
WHEN (NEW.state <> 'detached')
EXECUTE FUNCTION audit_row('payment_method.updated', 'payment_method', 'id', '*');

CREATE OR REPLACE TRIGGER audit_created AFTER INSERT ON webhooks FOR EACH ROW
EXECUTE FUNCTION audit_row('webhook.created', 'webhook', 'id', '*', '-disabled_by');
CREATE OR REPLACE TRIGGER audit_deleted AFTER DELETE ON webhooks FOR EACH ROW
EXECUTE FUNCTION audit_row('webhook.deleted', 'webhook', 'id', '*', '-disabled_by');
CREATE OR REPLACE TRIGGER audit_updated AFTER UPDATE ON webhooks FOR EACH ROW
EXECUTE FUNCTION audit_row('webhook.updated', 'webhook', 'id', '*');

CREATE OR REPLACE TRIGGER audit_created AFTER INSERT ON provider_keys FOR EACH ROW
EXECUTE FUNCTION audit_row('provider_key.created', 'provider_key', 'id', '*', 'provider_id=provider', '-key_prefix',
  '-is_valid');
CREATE OR REPLACE TRIGGER audit_deleted AFTER DELETE ON provider_keys FOR EACH ROW
EXECUTE FUNCTION audit_row('provider_key.deleted', 'provider_key', 'id', '*', 'provider_id=provider', '-key_prefix',
  '-is_valid');
CREATE OR REPLACE TRIGGER audit_updated AFTER UPDATE ON provider_keys FOR EACH ROW
EXECUTE FUNCTION audit_row('provider_key.updated', 'provider_key', 'id', '*', 'provider_id=provider', '-key_prefix');

CREATE OR REPLACE TRIGGER audit_guardrail_created AFTER INSERT ON definitions FOR EACH ROW
WHEN (NEW.kind = 'guardrail')
EXECUTE FUNCTION audit_row('guardrail.created', 'guardrail', 'id', '*', '-kind');
CREATE OR REPLACE TRIGGER audit_guardrail_deleted AFTER DELETE ON definitions FOR EACH ROW
WHEN (OLD.kind = 'guardrail')
EXECUTE FUNCTION audit_row('guardrail.deleted', 'guardrail', 'id', '*', '-kind');
CREATE OR REPLACE TRIGGER audit_guardrail_updated AFTER UPDATE ON definitions FOR EACH ROW
WHEN (NEW.kind = 'guardrail')
EXECUTE FUNCTION audit_row('guardrail.updated', 'guardrail', 'id', '*', '-kind');
CREATE OR REPLACE TRIGGER audit_preset_created AFTER INSERT ON definitions FOR EACH ROW WHEN (NEW.kind = 'preset')
EXECUTE FUNCTION audit_row('preset.created', 'preset', 'id', '*', '-kind');
CREATE OR REPLACE TRIGGER audit_preset_deleted AFTER DELETE ON definitions FOR EACH ROW WHEN (OLD.kind = 'preset')
EXECUTE FUNCTION audit_row('preset.deleted', 'preset', 'id', '*', '-kind');
CREATE OR REPLACE TRIGGER audit_preset_updated AFTER UPDATE ON definitions FOR EACH ROW WHEN (NEW.kind = 'preset')
EXECUTE FUNCTION audit_row('preset.updated', 'preset', 'id', '*', '-kind');

CREATE OR REPLACE TRIGGER audit_created AFTER INSERT ON guardrail_defaults FOR EACH ROW
EXECUTE FUNCTION audit_row('guardrail.enforced', 'guardrail', 'guardrail_id', '*', '-guardrail_id');
CREATE OR REPLACE TRIGGER audit_deleted AFTER DELETE ON guardrail_defaults FOR EACH ROW
EXECUTE FUNCTION audit_row('guardrail.released', 'guardrail', 'guardrail_id', '*', '-guardrail_id');
