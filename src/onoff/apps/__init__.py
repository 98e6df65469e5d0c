"""The edge: command line, page, demonstration, studies."""
