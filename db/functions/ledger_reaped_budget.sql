-- Returns the amount that the last checkpoint of a request would count against the budgets of its key, if the batch
-- ends the holds of dead instances. Returns null if the amount is the same as the charge.
--
-- Called by ledger_exchange_batch.
CREATE OR REPLACE FUNCTION ledger_reaped_budget(p_batch jsonb, p_request text) RETURNS bigint
LANGUAGE sql AS $$
  SELECT a.budget_charge_nano FROM attempts a WHERE p_batch ? 'reaping' AND a.request_id = p_request
$$;
