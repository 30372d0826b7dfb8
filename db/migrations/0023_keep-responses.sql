-- Makes responses visible in the transaction of their charges. Raises GW004 where one of them is not there, because
-- the server has crashed between the commit that wrote it, which need not wait for the disk, and this.
CREATE FUNCTION keep_responses(p_kept jsonb, p_removed_after interval) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
  v_count integer;
BEGIN
  UPDATE responses r SET is_kept = true, own_bytes = k.own_bytes, chain_bytes = k.chain_bytes,
    created_at = clock_timestamp(), remove_after = clock_timestamp() + p_removed_after
  FROM jsonb_to_recordset(p_kept) AS k (id text, own_bytes integer, chain_bytes bigint)
  WHERE r.id = k.id;
  GET DIAGNOSTICS v_count = ROW_COUNT;
  IF v_count < jsonb_array_length(p_kept) THEN
    RAISE EXCEPTION 'a response is not there to be kept' USING ERRCODE = 'GW004';
  END IF;
  RETURN v_count;
END
$$;
