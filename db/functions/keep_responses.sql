-- Makes responses visible in the transaction of their charges, and appends them to their conversations. Returns their
-- number. Raises GW004 if one of them does not exist: the commit that wrote it need not wait for the disk, so a crash
-- of the server can lose it.
--
-- Called by keepResponses in db/queries/responses.ts.
CREATE OR REPLACE FUNCTION keep_responses(p_kept jsonb, p_removed_after interval) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
  v_count integer;
BEGIN
  UPDATE responses r SET is_kept = true, own_bytes = k.own_bytes, chain_bytes = k.chain_bytes,
    created_at = clock_timestamp(), remove_after = clock_timestamp() + p_removed_after
  FROM jsonb_to_recordset(p_kept) AS k (id text, own_bytes integer, chain_bytes bigint)
  WHERE r.id = k.id AND r.id = ANY (ARRAY(SELECT one.id FROM jsonb_to_recordset(p_kept) AS one (id text)));
  GET DIAGNOSTICS v_count = ROW_COUNT;
  IF v_count < jsonb_array_length(p_kept) THEN
    RAISE EXCEPTION 'a response to keep does not exist' USING ERRCODE = 'GW004';
  END IF;
  -- Every transaction locks conversations in this order, so two of them never deadlock.
  PERFORM append_to_conversation(k.id, k.conversation_id)
  FROM (SELECT id, conversation_id FROM jsonb_to_recordset(p_kept) AS k (id text, conversation_id text)
    WHERE conversation_id IS NOT NULL ORDER BY conversation_id, id) AS k;
  RETURN v_count;
END
$$;
