SELECT dependent, prerequisite
  FROM json_each(?1) CROSS JOIN edges ON prerequisite = value
