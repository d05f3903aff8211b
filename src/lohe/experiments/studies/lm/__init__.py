"""Language modelling: Tables 4 and 5, Figure 6, Appendix E's alternatives."""
