-- Writes an entry of the audit log. The author is p_author, or the one that the transaction or session states as
-- gateway.author; otherwise the gateway itself.
--
-- Called by audit_row, audit_credit_command, and recordAct in db/queries/audit-log.ts.
CREATE OR REPLACE FUNCTION record_act(p_organization text, p_action text, p_type text, p_id text, p_before jsonb,
  p_after jsonb, p_author jsonb DEFAULT nullif(current_setting('gateway.author', true), '')::jsonb)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  v_now timestamptz := clock_timestamp();
  v_micros bigint := extract(epoch FROM v_now) * 1000000;
BEGIN
  INSERT INTO audit_log (id, organization_id, action, object_type, object_id, actor, before, after, created_at)
  VALUES ('act_' || lpad(to_hex(v_micros / 1000), 12, '0') || lpad(to_hex(v_micros % 1000), 3, '0')
      || right(replace(gen_random_uuid()::text, '-', ''), 17),
    p_organization, p_action, p_type, p_id,
    coalesce(p_author, '{"kind": "system", "id": null, "name": null}'), p_before, p_after, v_now);
END $$;
