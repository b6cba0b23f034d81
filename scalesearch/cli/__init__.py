"""The command line: one verb a file, imported only when it is called."""
