"""Jobs: their queue, the dispatcher that starts their attempts, and the processes of these."""
