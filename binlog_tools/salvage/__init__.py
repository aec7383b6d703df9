"""Everything that is undamaged, out of a damaged log; docs/recovery.md has the rules."""
