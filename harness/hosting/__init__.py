"""Where workers live: started on this machine, or in a container that is spoken to over its standard input and output (Linux only)."""
