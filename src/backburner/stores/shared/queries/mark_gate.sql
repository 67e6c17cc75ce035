UPDATE queues SET window_at = ?2, started = ?3, limited_until = ?4, closed = ?5
 WHERE name = ?1
