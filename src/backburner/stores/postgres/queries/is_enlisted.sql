SELECT 1 FROM workers WHERE id = $1
