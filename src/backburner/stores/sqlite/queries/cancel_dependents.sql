UPDATE jobs
   SET state = 'cancelled', error = ?3, error_code = ?4, finished_at = ?2, open = 0,
       events = events + 1
 WHERE state = 'blocked' AND seq IN (
   SELECT dependent FROM json_each(?1) JOIN edges ON prerequisite = value
    WHERE NOT continues
 )
RETURNING seq, queue
