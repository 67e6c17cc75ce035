"""Where large contents are kept: one module per kind of place."""
