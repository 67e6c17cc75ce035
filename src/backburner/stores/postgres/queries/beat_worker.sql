UPDATE workers SET beat_at = (extract(epoch FROM clock_timestamp()) * 1000)::bigint
 WHERE id = $1 RETURNING id
