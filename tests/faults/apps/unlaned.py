"""The same without its limits."""

from laned import call

from backburner import App

app = App("unlaned", [call])
