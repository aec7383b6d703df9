"""Rights asked for: the guard before commands, tokens compared, peers known."""
