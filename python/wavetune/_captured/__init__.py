"""What a builder makes of captures: of programs' launches as the wheel recorded them
(_runtime/capture.py)."""
