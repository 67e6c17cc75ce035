INSERT INTO totals (queue, state, n)
SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[])
