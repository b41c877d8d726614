"""What runs inside programs: choices and compiled code from a wavetune server. Python 3.9, the
standard library alone.

Nothing here raises into the program; a module is imported only when it is needed.
"""
