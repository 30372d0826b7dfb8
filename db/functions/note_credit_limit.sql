-- Stores the credit limit that an operator's order replaces, for its audit entry.
--
-- Trigger of credit_commands.
CREATE OR REPLACE FUNCTION note_credit_limit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  SELECT credit_limit_nano INTO NEW.limit_before_nano FROM accounts
  WHERE id = 'org:' || NEW.organization_id;
  RETURN NEW;
END $$;
