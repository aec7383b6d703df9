"""Reading a whole log: what is sound, torn or damaged in it, and the jobs that survive."""
