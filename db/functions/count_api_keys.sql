-- Keeps organizations.key_count equal to the number of the organization's keys that are not deleted. It counts under
-- the lock of the organization's row. So a limit on the number of keys is exact across instances, and costs the same
-- with 100,000 keys as with one.
--
-- Trigger of api_keys.
CREATE OR REPLACE FUNCTION count_api_keys() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
  v_before integer := CASE WHEN TG_OP <> 'INSERT' AND OLD.deleted_at IS NULL THEN 1 ELSE 0 END;
  v_after integer := CASE WHEN TG_OP <> 'DELETE' AND NEW.deleted_at IS NULL THEN 1 ELSE 0 END;
BEGIN
  IF v_before <> v_after THEN
    UPDATE organizations SET key_count = key_count + v_after - v_before
    WHERE id = CASE WHEN TG_OP = 'DELETE' THEN OLD.organization_id ELSE NEW.organization_id END;
  END IF;
  RETURN NULL;
END
$$;
