-- Includes what their jobs used in the same generation since they last waited.
SELECT h.seq, h.job, h.account, a.unit, h.amount, h.used, count(u.seq),
       max(coalesce(sum(iif(a.unit = 'money', u.cost,
                            u.input_tokens + u.output_tokens)), 0)
           - coalesce(h.earlier, 0), 0),
       iif(a.unit = 'money', count(u.seq) - count(u.cost), 0),
       h.earlier, h.resumes_with
  FROM json_each(?1) AS asked
  JOIN holds AS h ON h.job = asked.value
  JOIN accounts AS a ON a.seq = h.account
  LEFT JOIN usages AS u ON u.job = h.job AND u.generation = h.generation
 WHERE h.is_open = ?2
 GROUP BY h.seq
