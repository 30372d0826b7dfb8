-- Adds the organization's next transactions, at most p_most, to the sums of its statements. Returns true if there may
-- be more. Any number of instances may call it at the same time: the lock of the cursor serializes them, and each
-- transaction is added once, because the cursor moves with the sums.
--
-- Transactions become visible in the order of their sequence, because each is numbered under the lock of its
-- organization's account. So none below the last visible one is missing.
--
-- Called by rollUpStatements in db/queries/statements.ts.
CREATE OR REPLACE FUNCTION statement_roll_up(p_organization text, p_most integer) RETURNS boolean
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
DECLARE
  v_cursor bigint;
  v_last bigint;
BEGIN
  SELECT sequence INTO v_cursor FROM statement_cursors WHERE organization_id = p_organization FOR UPDATE;
  IF NOT FOUND THEN
    INSERT INTO statement_cursors (organization_id) VALUES (p_organization) ON CONFLICT DO NOTHING;
    SELECT sequence INTO v_cursor FROM statement_cursors WHERE organization_id = p_organization FOR UPDATE;
  END IF;
  SELECT max(sequence) INTO v_last FROM transactions
  WHERE organization_id = p_organization AND sequence > v_cursor AND sequence <= v_cursor + p_most;
  IF v_last IS NULL THEN
    RETURN false;
  END IF;
  INSERT INTO statement_sums AS s (organization_id, kind, month, model, transactions, amount_nano, fee_nano)
  SELECT p_organization, kind, month, model, sum(transactions), sum(amount_nano), sum(fee_nano)
  FROM (
    SELECT date_trunc('month', created_at, 'UTC')::date AS month, usage_name(model) AS model_name,
      count(*) AS transactions, sum(amount_nano) AS amount_nano, sum(coalesce(fee_nano, 0)) AS fee_nano
    FROM transactions
    WHERE organization_id = p_organization AND sequence > v_cursor AND sequence <= v_last AND type = 'usage'
    GROUP BY 1, 2
  ) charges
  -- Each charge once among all charges, and once for its model.
  CROSS JOIN LATERAL (VALUES ('charge', ''), ('model', model_name)) AS k (kind, model)
  GROUP BY kind, month, model
  UNION ALL
  SELECT p_organization, transaction_kind(t), date_trunc('month', t.created_at, 'UTC')::date, '', count(*),
    sum(t.amount_nano), 0
  FROM transactions t
  WHERE t.organization_id = p_organization AND t.sequence > v_cursor AND t.sequence <= v_last AND t.type <> 'usage'
  GROUP BY 2, 3
  ON CONFLICT (organization_id, kind, month, model) DO UPDATE SET
    transactions = s.transactions + EXCLUDED.transactions, amount_nano = s.amount_nano + EXCLUDED.amount_nano,
    fee_nano = s.fee_nano + EXCLUDED.fee_nano;
  UPDATE statement_cursors SET sequence = v_last WHERE organization_id = p_organization;
  RETURN v_last = v_cursor + p_most;
END
$$;
