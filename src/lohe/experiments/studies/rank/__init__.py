"""The rank of attention and how flat it is: Figures 9 and 10."""
