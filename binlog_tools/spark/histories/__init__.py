"""What became of jobs, computed with numpy: Arrow tables in, Arrow tables out."""
