"""Values and decisions. No I/O, no clock, no dice, no logging, no third parties."""
