"""What the command lines of this package share: words, tables, interrupts."""
