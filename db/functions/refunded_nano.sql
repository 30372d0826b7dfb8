-- Returns how much of a charge was given back so far, by an operator or because its answer was never sent. Call it
-- under the lock of the organization's account. A full refund without a row in charge_refunds counts too.
--
-- Called by ledger_refund and ledger_refund_part.
CREATE OR REPLACE FUNCTION refunded_nano(p_charge transactions) RETURNS bigint
LANGUAGE sql STABLE AS $$
  SELECT coalesce(
    (SELECT r.refunded_nano FROM charge_refunds r WHERE r.transaction_id = p_charge.id),
    (SELECT t.amount_nano FROM transactions t WHERE t.refunded_request_id = p_charge.request_id),
    0);
$$;
