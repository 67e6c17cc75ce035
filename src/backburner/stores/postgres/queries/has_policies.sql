-- Looked at every second by every worker: mostly there are none.
SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
       EXISTS (SELECT FROM queues)
