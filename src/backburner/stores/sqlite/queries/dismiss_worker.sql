DELETE FROM workers WHERE id = ?
