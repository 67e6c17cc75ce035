INSERT INTO holds (seq, id, job, generation, account, amount, is_open, is_estimated,
                   expires_at)
SELECT seq, id, job, generation, account, amount, true, false, expires_at
  FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::int[], $5::bigint[],
              $6::bigint[], $7::bigint[])
    AS h (seq, id, job, generation, account, amount, expires_at)
