"""What all parts of the Spark package go by."""
