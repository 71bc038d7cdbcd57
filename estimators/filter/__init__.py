"""The filter of a sequence of steps, its noise, and the detection of jumps."""
