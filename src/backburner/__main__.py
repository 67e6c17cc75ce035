"""Run the command line as `python -m backburner`."""

from backburner.cli import main

main()
