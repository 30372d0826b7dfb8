-- Returns the tags of a request, each once, at most 32. Returns one empty tag if there are none. p_tags is an array of
-- texts, or one text with tags between commas, as budgets of tags read it.
--
-- Called by usage_roll_up.
CREATE OR REPLACE FUNCTION usage_tags(p_tags jsonb) RETURNS SETOF text
LANGUAGE sql IMMUTABLE PARALLEL SAFE ROWS 2 AS $$
  WITH stated AS (
    SELECT tag #>> '{}' AS name, place
    FROM jsonb_array_elements(CASE jsonb_typeof(p_tags) WHEN 'array' THEN p_tags ELSE '[]' END)
      WITH ORDINALITY AS elements (tag, place)
    WHERE jsonb_typeof(tag) = 'string'
    UNION ALL
    SELECT regexp_replace(part, '^\s+|\s+$', '', 'g'), place
    FROM regexp_split_to_table(CASE jsonb_typeof(p_tags) WHEN 'string' THEN p_tags #>> '{}' END, ',')
      WITH ORDINALITY AS parts (part, place)
  ), tags AS (
    SELECT DISTINCT usage_name(name) AS name FROM (
      SELECT name FROM stated WHERE name <> '' ORDER BY place LIMIT 32
    ) first_ones
  )
  SELECT name FROM tags UNION ALL SELECT '' WHERE NOT EXISTS (SELECT FROM tags)
$$;
