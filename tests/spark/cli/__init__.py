"""The commands of the Spark part."""
