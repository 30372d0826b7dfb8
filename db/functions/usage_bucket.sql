-- Returns the bucket of a latency. Buckets grow by the eighth root of two: bucket b > 0 starts at 2^((b - 1) / 8) ms,
-- bucket 0 counts values below 1 ms. middleMs in db/queries/usage-latency.ts is its inverse.
--
-- Called by usage_roll_up.
CREATE OR REPLACE FUNCTION usage_bucket(p_ms double precision) RETURNS smallint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE WHEN p_ms < 1 THEN 0 ELSE 1 + floor(8 * ln(least(p_ms, 2147483647)) / ln(2::double precision)) END::smallint
$$;
