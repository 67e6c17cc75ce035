"""The way out of the house: every address is judged when it is connected to."""
