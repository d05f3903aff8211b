"""Keyword spotting: Table 1 and Figure 3."""
