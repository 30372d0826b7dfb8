-- Returns the sums of two objects of whole numbers, by key. Returns null if one of them is null.
--
-- Called by the aggregate usage_sum_quantities, which skips null, and by usage_roll_up and usage_fold_subjects.
CREATE OR REPLACE FUNCTION usage_add_quantities(p_left jsonb, p_right jsonb) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
  v_kind text;
  v_amount numeric;
BEGIN
  FOR v_kind, v_amount IN SELECT kind, amount::numeric FROM jsonb_each(p_right) AS amounts (kind, amount) LOOP
    p_left := p_left || jsonb_build_object(v_kind, coalesce((p_left->v_kind)::numeric, 0) + v_amount);
  END LOOP;
  RETURN p_left;
END
$$;
