-- Finds the job of a claim if it still runs under the claim's token.
SELECT seq FROM jobs WHERE seq = ?1 AND jobs.token = ?2 AND state = 'running'
