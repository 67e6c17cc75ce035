import pytest

pytest.register_assert_rewrite("backburner.testing.store")
pytest.register_assert_rewrite("backburner.testing.broker")
