INSERT INTO totals (queue, state, n)
SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?1)
