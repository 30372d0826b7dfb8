-- Returns the kind of a transaction: its type, divided by the cause. Each transaction has one kind.
--   charge            a charge
--   topup             a top-up that was ordered, or posted without a payment
--   automatic_topup   a top-up that the gateway ordered
--   refund            a charge that was given back
--   card_refund       an adjustment: a payment that was refunded to its card, or a failed refund that was put back
--   dispute           an adjustment: a disputed payment, or one that was put back after a won dispute
--   starting_credit   an adjustment that came with the organization
--   adjustment        any other adjustment
-- The kind does not change after the commit: the rows that decide it are written before, or in the same transaction.
--
-- Called by statement_roll_up, and by db/queries/credit-list.ts.
CREATE OR REPLACE FUNCTION transaction_kind(p_transaction transactions) RETURNS text
LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
DECLARE
  v_order text;
  v_reversal text;
BEGIN
  IF p_transaction.type = 'usage' THEN
    RETURN 'charge';
  END IF;
  IF p_transaction.type = 'topup' THEN
    PERFORM 1 FROM payment_intents
    WHERE transaction_id = p_transaction.id AND purpose = 'auto_replenish';
    RETURN CASE WHEN FOUND THEN 'automatic_topup' ELSE 'topup' END;
  END IF;
  IF p_transaction.type <> 'adjustment' THEN
    RETURN p_transaction.type;
  END IF;
  SELECT id INTO v_order FROM credit_commands WHERE transaction_id = p_transaction.id;
  IF v_order IS NULL THEN
    PERFORM 1 FROM payment_refunds WHERE returned_transaction_id = p_transaction.id;
    IF FOUND THEN
      RETURN 'card_refund';
    END IF;
    RETURN CASE p_transaction.description WHEN 'Starting credit' THEN 'starting_credit' ELSE 'adjustment' END;
  END IF;
  -- An order for a reversal is named cmd_<id of the reversal>_<number>.
  SELECT CASE kind WHEN 'dispute' THEN 'dispute' ELSE 'card_refund' END INTO v_reversal FROM payment_reversals
  WHERE id = substring(v_order FROM '^cmd_(.*)_[0-9]+$');
  IF FOUND THEN
    RETURN v_reversal;
  END IF;
  PERFORM 1 FROM payment_refunds WHERE order_id = v_order;
  RETURN CASE WHEN FOUND THEN 'card_refund' ELSE 'adjustment' END;
END
$$;
