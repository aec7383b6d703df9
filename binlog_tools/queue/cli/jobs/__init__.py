"""The subcommands of ``beanstalk`` that put, show, take or change jobs."""
