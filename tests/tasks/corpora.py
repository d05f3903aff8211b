"""Two stories in the official layout."""

STORIES = "Once upon a time there was a cat.\n<|endoftext|>\nThe cat sat, and sat!\n<|endoftext|>\n"
