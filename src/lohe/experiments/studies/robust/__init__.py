"""Imperfect devices and weak drives: Figure 8 and Table 9."""
