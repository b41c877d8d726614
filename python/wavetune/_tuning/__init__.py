"""`python3 -m wavetune tune`: command.py has its steps."""
