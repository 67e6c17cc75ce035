-- A separate statement after the lock, so that it sees what the last holder committed,
-- and returns a time that is not before that.
SELECT count(*), (extract(epoch FROM clock_timestamp()) * 1000)::bigint
  FROM jobs WHERE state = 'running' AND queue = $1
