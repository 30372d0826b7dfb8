-- Returns a text in a form that fits an index: unchanged up to 256 bytes, else its beginning and a hash. Returns an
-- empty text for null.
--
-- Called by usage_roll_up, usage_tags, and db/queries/usage.ts.
CREATE OR REPLACE FUNCTION usage_name(p_text text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE WHEN p_text IS NULL THEN '' WHEN octet_length(p_text) <= 256 THEN p_text
    ELSE left(p_text, 48) || '…' || md5(p_text) END
$$;
