"""A browser for each test; files to drop into it."""

import pytest

from tests.browser import a_tab

FILES = {
    "manual.md": "# Pump\n\nThe pump moves 40 litres of water per minute.\n",
    "prices.csv": "item,price\npump,250\nfilter,12\n",
    "report.txt": "The annual report of the company names no prices.\n",
    "travel.html": "<h1>Travel</h1><p>A hotel may cost 140 euros a night.</p>",
    "warranty.txt": "The warranty lasts two years. Returns are free in 30 days.\n",
}


@pytest.fixture
def files(tmp_path):
    """Five files of several kinds, by name."""
    folder = tmp_path / "files"
    folder.mkdir()
    for name, text in FILES.items():
        folder.joinpath(name).write_text(text)
    return [folder / name for name in FILES]


@pytest.fixture
async def tab():
    async with a_tab() as opened:
        await opened.look()
        yield opened
