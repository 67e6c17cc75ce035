INSERT INTO edges (prerequisite, dependent, continues)
SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?1) WHERE 1
ON CONFLICT DO NOTHING
