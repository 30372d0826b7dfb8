-- Returns the part of a charge that is the fee, if the fee is that many basis points of the provider cost. For charges
-- whose fee was not recorded. Null basis points stand for those of the organization's plan, as src/lib/plans.ts has them.
--
-- Called by usage_roll_up and usage_add_to_gateway.
CREATE OR REPLACE FUNCTION usage_fee(p_charge_nano bigint, p_basis_points integer, p_plan text) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT p_charge_nano - round(p_charge_nano * 10000::numeric / (10000
    + coalesce(p_basis_points, CASE p_plan WHEN 'free' THEN 400 WHEN 'pro' THEN 250 ELSE 0 END)))::bigint
$$;
