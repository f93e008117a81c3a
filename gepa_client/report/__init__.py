"""What is known of a run, by its events, and the sentences and facts about it."""
