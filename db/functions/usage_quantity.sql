-- Returns the amount of one kind of use, or null if the request has none. It is capped at 10^12, so that no stored
-- amount makes a sum overflow.
--
-- Called by usage_roll_up.
CREATE OR REPLACE FUNCTION usage_quantity(p_quantities jsonb, p_kind text) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE WHEN p_quantities ? p_kind
    THEN least(trunc((p_quantities->>p_kind)::numeric), 1000000000000)::bigint END
$$;
