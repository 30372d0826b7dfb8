-- Returns columns of a row under the names and in the units of the API. A column is given as 'column' or as
-- 'column=name'. '*' adds all other columns, except those that '-column' names and those that are hidden here: columns
-- with secrets, and columns that are no setting of the object. Amounts are in USD. For the column body it returns the
-- members of the body. It cuts the query off a URL, because a query may hold a secret.
--
-- Called by audit_row.
CREATE OR REPLACE FUNCTION audited_fields(p_row jsonb, p_columns text[]) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
  WITH columns AS (
    SELECT c FROM unnest(p_columns) AS c WHERE c <> '*' AND c NOT LIKE '-%'
    UNION
    SELECT c FROM jsonb_object_keys(p_row) AS c
    WHERE '*' = ANY (p_columns)
      AND c NOT IN (SELECT ltrim(split_part(stated, '=', 1), '-') FROM unnest(p_columns) AS stated)
      AND c NOT IN ('id', 'organization_id', 'created_at', 'updated_at', 'deleted_at', 'revoked_at', 'disabled_at',
        'suspended_at', 'last_used_at', 'playground_holder', 'version', 'key_count', 'key_hash', 'secret', 'previous_secret',
        'previous_secret_until', 'delivery_id_key', 'plain_delivery_ids_up_to', 'reference', 'setup_reference',
        'unreachable_since')
  )
  SELECT coalesce(jsonb_object_agg(name, value), '{}') FROM (
    SELECT regexp_replace(coalesce(nullif(split_part(c, '=', 2), ''), c), '_nano$', '_usd') AS name,
      CASE
        WHEN p_row->split_part(c, '=', 1) = 'null' THEN 'null'
        WHEN c LIKE '%\_nano' THEN
          to_jsonb(trim_scale((p_row->>c)::numeric * 0.000000001))
        WHEN c LIKE '%url' THEN to_jsonb(regexp_replace(p_row->>c, '[?#].*$', '?…'))
        ELSE p_row->split_part(c, '=', 1)
      END AS value
    FROM columns WHERE c <> 'body'
    UNION ALL
    SELECT key, jsonb_each.value FROM jsonb_each(p_row->'body')
    WHERE EXISTS (SELECT 1 FROM columns WHERE c = 'body')
  ) fields
$$;
