"""Commands that change many jobs, slice by slice."""
