WITH s AS (
  SELECT * FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::text[])
    AS s (seq, token, at, data)
), noted AS (
  UPDATE jobs SET progress = s.data, events = events + 1
    FROM s WHERE jobs.seq = s.seq AND jobs.token = s.token
  RETURNING jobs.seq, jobs.events, s.at, s.data
)
INSERT INTO events (job, n, type, at, data)
SELECT seq, events, 'job.progress', at, data FROM noted
