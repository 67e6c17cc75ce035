-- Only the holder of a running job reports: a note with a used number is a repeat.
WITH s AS (
  SELECT * FROM unnest(
    $1::bigint[], $2::text[], $3::int[], $4::bigint[], $5::text[], $6::text[]
  ) AS s (seq, token, n, at, type, data)
), noted AS (
  UPDATE jobs
     SET progress = CASE s.type WHEN 'job.progress' THEN s.data ELSE progress END,
         events = events + 1
    FROM s
   WHERE jobs.seq = s.seq AND jobs.token = s.token AND jobs.events = s.n - 1
  RETURNING jobs.seq, jobs.tenant, jobs."user", s.n, s.type, s.at, s.data
)
INSERT INTO events (job, n, type, at, data, tenant, "user")
SELECT seq, n, type, at, data, tenant, "user" FROM noted
