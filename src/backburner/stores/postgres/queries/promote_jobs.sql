-- Queues what is due: scheduled jobs, and waiting jobs whose timeout has come.
WITH due AS (
  SELECT seq FROM jobs WHERE state = 'scheduled' AND run_at <= $1
   ORDER BY run_at LIMIT $2 FOR UPDATE SKIP LOCKED
), timed_out AS (
  SELECT seq FROM jobs WHERE state = 'waiting' AND run_at <= $1
   ORDER BY run_at LIMIT $2 FOR UPDATE SKIP LOCKED
), promoted AS (
  UPDATE jobs SET state = 'queued', ready_at = $1, events = events + 1
   WHERE seq = ANY (ARRAY (SELECT seq FROM due UNION ALL SELECT seq FROM timed_out))
  RETURNING seq, events, tenant, "user"
), told AS (
  INSERT INTO events (job, n, type, at, tenant, "user")
  SELECT seq, events, 'job.queued', $1, tenant, "user" FROM promoted
)
SELECT seq FROM promoted
