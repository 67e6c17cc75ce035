-- Locks the flows of jobs for transactions that lock jobs by key and change no flow.
SELECT seq FROM flows
 WHERE seq = ANY (ARRAY (
   SELECT flow FROM jobs WHERE seq = ANY ($1::bigint[]) AND flow IS NOT NULL
 ))
 ORDER BY seq FOR SHARE
