"""The same with permits that outlive their workers."""

import sqlalchemy as sa
from laned import app

from backburner.stores.shared import lanes
from backburner.stores.tables import permits

lanes._SWEEP = sa.delete(permits).where(sa.false())

__all__ = ["app"]
