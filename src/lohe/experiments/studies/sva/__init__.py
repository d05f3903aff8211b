"""Subject-verb agreement: Tables 2, 3 and 8, Figure 4."""
