DELETE FROM step_results WHERE job IN (SELECT value FROM json_each(?1))
