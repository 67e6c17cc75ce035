-- Run every second by every worker: usually there are none.
SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
       EXISTS (SELECT FROM queues)
