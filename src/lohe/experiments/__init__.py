"""Runs become records, records become tables and figures."""
