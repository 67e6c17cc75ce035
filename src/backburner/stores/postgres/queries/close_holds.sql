UPDATE holds
   SET is_open = false, used = m.used, is_estimated = m.is_estimated
  FROM unnest($1::bigint[], $2::bigint[], $3::boolean[]) AS m (seq, used, is_estimated)
 WHERE holds.seq = m.seq
