"""The same conversations over every transport of the client."""
