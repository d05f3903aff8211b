"""Do the oscillators settle in time: Table 6 and Figure 7, Section 4.4."""
