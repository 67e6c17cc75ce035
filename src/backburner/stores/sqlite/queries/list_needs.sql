SELECT e.dependent, p.step, p.id, p.state, p.output, p.error
  FROM edges AS e JOIN jobs AS p ON p.seq = e.prerequisite
 WHERE e.dependent IN (SELECT value FROM json_each(?1)) ORDER BY e.dependent, p.seq
