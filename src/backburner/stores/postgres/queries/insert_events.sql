INSERT INTO events (job, n, type, at, data, tenant, "user")
SELECT jobs.seq, jobs.events, s.type, s.at, s.data, jobs.tenant, jobs."user"
  FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::text[])
    AS s (seq, type, at, data)
  JOIN jobs ON jobs.seq = s.seq
 ORDER BY jobs.seq
