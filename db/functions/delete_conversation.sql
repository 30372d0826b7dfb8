-- Deletes a conversation and keeps its responses for p_kept longer, as it keeps any stored response. Returns false if
-- the conversation does not exist. It also covers a turn that was added while it waited for the lock, because each
-- statement has a snapshot of its own.
--
-- Called by deleteConversation in db/queries/conversations.ts.
CREATE OR REPLACE FUNCTION delete_conversation(p_id text, p_organization_id text, p_kept interval) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM conversations WHERE id = p_id AND organization_id = p_organization_id;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  UPDATE responses SET remove_after = clock_timestamp() + p_kept
  WHERE chain_id = p_id AND remove_after = 'infinity';
  RETURN true;
END
$$;
