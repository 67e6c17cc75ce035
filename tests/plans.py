"""How PostgreSQL carries out the statements of a read, and what they cost it."""

import json

import sqlalchemy as sa


def plans(connection, read):
    """Run a read; return how each statement of it was carried out."""
    seen = []

    @sa.event.listens_for(connection, "before_cursor_execute")
    def _note(_connection, _cursor, statement, parameters, *_):
        seen.append((statement, parameters))

    read(connection)
    sa.event.remove(connection, "before_cursor_execute", _note)
    for statement, parameters in seen:
        explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}"
        told = connection.exec_driver_sql(explain, parameters).scalar_one()
        yield (json.loads(told) if isinstance(told, str) else told)[0]["Plan"]


def rows_of(plan):
    """Add up the rows that a plan's nodes returned, and those they dropped."""
    removed = [v for name, v in plan.items() if name.startswith("Rows Removed")]
    rows = (plan["Actual Rows"] + sum(removed)) * plan["Actual Loops"]
    return rows + sum(map(rows_of, plan.get("Plans", ())))


def pages_of(plan):
    """Count the pages of tables and indexes that a plan looked at."""
    # An index entry that is passed over is no row, but it is on a page.
    return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
