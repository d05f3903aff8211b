"""The paper's studies, a folder each: what is run, measured, printed, drawn and judged."""
