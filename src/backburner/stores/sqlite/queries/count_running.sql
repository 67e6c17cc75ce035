-- This index has the queue of every running job, and only of running jobs.
SELECT count(*) FROM jobs INDEXED BY jobs_running
 WHERE state = 'running' AND queue = ?
