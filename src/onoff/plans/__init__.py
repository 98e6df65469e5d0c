"""Plans: what a client draws its queries from, kept in files and made ahead."""
