-- Writes an audit entry for an administrative act on a row. Trigger arguments: action, type of the object, column of
-- its id (empty if it has none), then the columns to show, as audited_fields takes them. If the action ends in
-- '.updated' and no shown column has changed, it writes nothing.
--
-- Trigger of each table whose changes are administrative acts.
CREATE OR REPLACE FUNCTION audit_row() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  v_action text := TG_ARGV[0];
  v_old jsonb := to_jsonb(OLD);
  v_new jsonb := to_jsonb(NEW);
  v_row jsonb := coalesce(v_new, v_old);
  v_before jsonb;
  v_after jsonb;
BEGIN
  IF v_old IS NOT NULL THEN v_before := audited_fields(v_old, TG_ARGV[3:]); END IF;
  IF v_new IS NOT NULL AND v_action NOT LIKE '%.deleted' THEN
    v_after := audited_fields(v_new, TG_ARGV[3:]);
  END IF;
  IF v_before IS NOT NULL AND v_after IS NOT NULL THEN
    SELECT coalesce(jsonb_object_agg(name, v_before->name) FILTER (WHERE v_before ? name), '{}'),
      coalesce(jsonb_object_agg(name, v_after->name) FILTER (WHERE v_after ? name), '{}')
    INTO v_before, v_after
    FROM jsonb_object_keys(v_before || v_after) AS name
    WHERE v_before->name IS DISTINCT FROM v_after->name;
    IF v_before = '{}' AND v_after = '{}' AND v_action LIKE '%.updated' THEN RETURN NULL; END IF;
  ELSE
    v_before := (SELECT jsonb_object_agg(key, value) FROM jsonb_each(v_before) WHERE value <> 'null');
    v_after := (SELECT jsonb_object_agg(key, value) FROM jsonb_each(v_after) WHERE value <> 'null');
  END IF;
  PERFORM record_act(
    CASE TG_TABLE_NAME WHEN 'organizations' THEN v_row->>'id' ELSE v_row->>'organization_id' END,
    v_action, TG_ARGV[1], v_row->>TG_ARGV[2], nullif(v_before, '{}'), nullif(v_after, '{}'));
  RETURN NULL;
END $$;
