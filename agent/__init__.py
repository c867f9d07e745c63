"""`agent`: a one-shot command-line agent whose memory can be trusted.

Read the package in this order, one secret a file: `errors`, `messages`, `events`, `config`, `tokens`, `session`,
`tools`, `compaction`, `loop`, `client`, `render`, `local`, `cli`. A module imports only what stands before it.
"""

__version__ = "0.1.0"
