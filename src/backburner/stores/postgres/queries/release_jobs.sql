-- Decreases the number of open prerequisites of each dependent; at 0 it is queued, or
-- scheduled if its time has not come. $1 are steps that succeeded; for those of $2, which
-- did not, only edges with `continues` count. Locked by key, so that two settlements
-- cannot deadlock. Only blocked jobs have open prerequisites; with a condition on the
-- state the planner would read all blocked jobs. `source` is the only prerequisite of a
-- step that has just one.
WITH d AS MATERIALIZED (
  SELECT dependent AS seq, count(*) AS n, min(prerequisite) AS source
    FROM (SELECT dependent, prerequisite FROM edges
           WHERE prerequisite = ANY ($1::bigint[])
           UNION ALL
          SELECT dependent, prerequisite FROM edges
           WHERE prerequisite = ANY ($2::bigint[]) AND continues) AS opened
   GROUP BY dependent
), waiting AS MATERIALIZED (
  SELECT jobs.seq, d.n, d.source FROM d JOIN jobs ON jobs.seq = d.seq
   WHERE jobs.open > 0 ORDER BY jobs.seq FOR UPDATE OF jobs
), released AS (
  UPDATE jobs
     SET open = jobs.open - waiting.n,
         state = CASE WHEN jobs.open > waiting.n THEN 'blocked'
                      WHEN jobs.run_at > $3::bigint THEN 'scheduled' ELSE 'queued' END,
         ready_at = greatest(jobs.run_at, $3::bigint),
         events = jobs.events + CASE WHEN jobs.open > waiting.n THEN 0 ELSE 1 END
    FROM waiting WHERE jobs.seq = waiting.seq
  RETURNING jobs.seq, jobs.id, jobs.tenant, jobs."user", jobs.state, jobs.flow,
            jobs.events,
            CASE jobs.needs WHEN 1 THEN waiting.source END AS source
), told AS (
  INSERT INTO events (job, n, type, at, tenant, "user")
  SELECT seq, events, 'job.' || state, $3, tenant, "user" FROM released
   WHERE state <> 'blocked' ORDER BY seq
)
SELECT flow, id, source FROM released WHERE state <> 'blocked'
