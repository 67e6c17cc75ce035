UPDATE workers SET beat_at = ?1 WHERE id = ?2 RETURNING id
