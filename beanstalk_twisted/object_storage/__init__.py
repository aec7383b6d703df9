"""Objects by name behind a URL: S3, Google and Azure storage, HDFS.  No Twisted."""
