-- A statement of its own, after the lock: it sees what the last holder committed, and
-- the time is not older than that.
SELECT count(*), (extract(epoch FROM clock_timestamp()) * 1000)::bigint
  FROM jobs WHERE state = 'running' AND queue = $1
