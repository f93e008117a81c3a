"""Worktrees: the files of each commit of the program's repository, in which that commit's program runs."""
