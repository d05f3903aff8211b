"""`lohe bench`: oscillator attention against the fastest softmax attention of this machine.

Everything that a ratio needs is measured in one process, in turns, after a check of the numbers.
"""
