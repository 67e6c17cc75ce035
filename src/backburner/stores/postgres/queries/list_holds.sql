-- Includes what their jobs used in the same generation since they last waited.
SELECT h.seq, h.job, h.account, a.unit, h.amount, h.used, count(u.seq),
       greatest(coalesce(sum(CASE a.unit WHEN 'money' THEN u.cost
                             ELSE u.input_tokens + u.output_tokens END), 0)::bigint
                - coalesce(h.earlier, 0), 0),
       CASE a.unit WHEN 'money' THEN count(u.seq) - count(u.cost) ELSE 0 END,
       h.earlier, h.resumes_with
  FROM holds AS h
  JOIN accounts AS a ON a.seq = h.account
  LEFT JOIN usages AS u ON u.job = h.job AND u.generation = h.generation
 WHERE h.job = ANY ($1::bigint[]) AND h.job IS NOT NULL AND h.is_open = $2::boolean
 GROUP BY h.seq, a.unit
