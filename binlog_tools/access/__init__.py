"""`beanstalk token` and `beanstalk access`: what the file of ``--access`` needs and says."""
