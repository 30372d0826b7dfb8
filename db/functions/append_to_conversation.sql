-- Appends a response to a conversation, after the conversation's last response. All contents of the response must be
-- written. Concurrent turns of one conversation end up in the order in which their charges are written. Returns false
-- if the conversation does not exist.
--
-- Called by keep_responses.
CREATE OR REPLACE FUNCTION append_to_conversation(p_id text, p_conversation_id text) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
  v_last text;
BEGIN
  SELECT last_id INTO v_last FROM conversations WHERE id = p_conversation_id FOR UPDATE;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  UPDATE responses SET previous_id = v_last, chain_id = p_conversation_id, remove_after = 'infinity',
    chain_bytes = own_bytes + coalesce((SELECT b.chain_bytes FROM responses b WHERE b.id = v_last), 0)
  WHERE id = p_id;
  UPDATE conversations SET last_id = p_id WHERE id = p_conversation_id;
  RETURN true;
END
$$;
