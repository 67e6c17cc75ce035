UPDATE workers
   SET beat_at = (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
       running = $2, lag_ms = $3, memory = $4
 WHERE id = $1 RETURNING id
