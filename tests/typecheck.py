"""beartype as the tests use it: an int is welcome where a float is asked for (PEP 484)."""

from beartype import BeartypeConf
from beartype import beartype as _beartype

beartype = _beartype(conf=BeartypeConf(is_pep484_tower=True))
