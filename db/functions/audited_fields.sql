-- Returns the named columns of a row under the names and in the units of the API. A column is given as 'column' or as
-- 'column=name'. Amounts are in USD. For 'body' it returns the members of the body. It cuts the query off a URL,
-- because a query may hold a secret.
--
-- Called by audit_row.
CREATE OR REPLACE FUNCTION audited_fields(p_row jsonb, p_columns text[]) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
  SELECT coalesce(jsonb_object_agg(name, value), '{}') FROM (
    SELECT regexp_replace(coalesce(nullif(split_part(c, '=', 2), ''), c), '_nano$', '_usd') AS name,
      CASE
        WHEN p_row->split_part(c, '=', 1) = 'null' THEN 'null'
        WHEN c LIKE '%\_nano' THEN
          to_jsonb(trim_scale((p_row->>c)::numeric * 0.000000001))
        WHEN c LIKE '%url' THEN to_jsonb(regexp_replace(p_row->>c, '[?#].*$', '?…'))
        ELSE p_row->split_part(c, '=', 1)
      END AS value
    FROM unnest(p_columns) AS c WHERE c <> 'body'
    UNION ALL
    SELECT key, jsonb_each.value FROM jsonb_each(p_row->'body') WHERE 'body' = ANY (p_columns)
  ) fields
$$;
