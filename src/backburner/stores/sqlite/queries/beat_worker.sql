UPDATE workers SET beat_at = ?1, running = ?3, lag_ms = ?4, memory = ?5
 WHERE id = ?2 RETURNING id
