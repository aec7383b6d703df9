"""What measures: that it can fail, and that it runs."""
