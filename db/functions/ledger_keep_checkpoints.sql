-- Stores the checkpoints of a batch: what each running request would be charged if its instance died now. A later
-- checkpoint of a request replaces the amounts and counts of the earlier one.
--
-- Called by ledger_settle_batch and ledger_exchange_batch.
CREATE OR REPLACE FUNCTION ledger_keep_checkpoints(p_batch jsonb) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO attempts (request_id, instance_id, epoch, organization_id, key_id, org_account,
    day_account, month_account, subject_accounts, hold_nano, charge_nano, budget_hold_nano, budget_charge_nano,
    fee_nano, model, provider, prompt_tokens, cached_prompt_tokens, completion_tokens, reasoning_tokens, quantities,
    estimated, latency_ms, details, description, started_at)
  SELECT c.request_id, p_batch->>'instance', (p_batch->>'epoch')::bigint, c.organization_id, c.key_id,
    c.org_account, c.day_account, c.month_account, c.subject_accounts, c.hold_nano, c.charge_nano,
    c.budget_hold_nano, c.budget_charge_nano, c.fee_nano, c.model, c.provider, c.prompt_tokens, c.cached_prompt_tokens,
    c.completion_tokens, c.reasoning_tokens, c.quantities,
    c.estimated, c.latency_ms, c.details, c.description, c.started_at
  FROM jsonb_to_recordset(p_batch->'checkpoints') AS c (request_id text, organization_id text,
    key_id text, org_account text, day_account text, month_account text, subject_accounts jsonb,
    hold_nano bigint, charge_nano bigint, budget_hold_nano bigint, budget_charge_nano bigint, fee_nano bigint, model text,
    provider text, prompt_tokens bigint, cached_prompt_tokens bigint, completion_tokens bigint, reasoning_tokens bigint, quantities jsonb, estimated boolean,
    latency_ms integer, details jsonb, description text, started_at timestamptz)
  ON CONFLICT (request_id) DO UPDATE SET hold_nano = EXCLUDED.hold_nano,
    charge_nano = EXCLUDED.charge_nano, budget_hold_nano = EXCLUDED.budget_hold_nano,
    budget_charge_nano = EXCLUDED.budget_charge_nano, fee_nano = EXCLUDED.fee_nano, prompt_tokens = EXCLUDED.prompt_tokens,
    cached_prompt_tokens = EXCLUDED.cached_prompt_tokens, completion_tokens = EXCLUDED.completion_tokens,
    reasoning_tokens = EXCLUDED.reasoning_tokens, quantities = EXCLUDED.quantities,
    estimated = EXCLUDED.estimated, latency_ms = EXCLUDED.latency_ms;
END
$$;
