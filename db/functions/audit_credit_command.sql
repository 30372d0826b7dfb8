-- Writes the audit entry of an operator's credit order: an adjustment, a refund or a new credit limit. A rejected order
-- gets no entry.
--
-- Deferred constraint trigger of credit_commands: it runs at the end of the transaction, when the outcome is known.
CREATE OR REPLACE FUNCTION audit_credit_command() RETURNS trigger LANGUAGE plpgsql AS $$
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
END $$;
