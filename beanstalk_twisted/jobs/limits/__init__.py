"""What jobs are bounded and counted by beside their tube: keys, groups, identities."""
