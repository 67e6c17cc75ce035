INSERT INTO edges (prerequisite, dependent, continues)
SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::boolean[])
ON CONFLICT DO NOTHING
