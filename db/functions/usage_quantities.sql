-- Returns all amounts of use as usage_quantity does, by their kinds. Returns null if there are none.
--
-- Called by usage_roll_up.
CREATE OR REPLACE FUNCTION usage_quantities(p_quantities jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT jsonb_object_agg(kind, usage_quantity(p_quantities, kind)) FROM jsonb_object_keys(p_quantities) AS kind
$$;
