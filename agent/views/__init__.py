"""What a session looks like to people: transcripts, pages, charts, and how verbs print."""
