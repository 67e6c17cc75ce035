-- The index holds the queue of every running job, and running jobs only.
SELECT count(*) FROM jobs INDEXED BY jobs_running
 WHERE state = 'running' AND queue = ?
