"""Records on disk, and what keeps them whole: locks, checkpoints, atomic files."""
