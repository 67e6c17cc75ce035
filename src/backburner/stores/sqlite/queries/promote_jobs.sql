-- Queues what is due: scheduled jobs, and waiting jobs whose timeout has come.
UPDATE jobs SET state = 'queued', ready_at = ?1, events = events + 1
 WHERE seq IN (
   SELECT seq FROM (SELECT seq FROM jobs WHERE state = 'scheduled' AND run_at <= ?1
                     ORDER BY run_at LIMIT ?2)
    UNION ALL
   SELECT seq FROM (SELECT seq FROM jobs WHERE state = 'waiting' AND run_at <= ?1
                     ORDER BY run_at LIMIT ?2)
 )
RETURNING seq
