"""`agent`: a one-shot command-line agent whose memory can be trusted.

Read the package in this order, one secret a chapter: `errors`, `messages`, `events`, `config`, `tokens`, `session`
(with `log`), `tools`, `compaction`, `loop`, `client` (with `wire`), `render` (with `views`), `local`, `cli`. A chapter
that outgrew one file is a folder of sections. A module imports only what stands before it.
"""

__version__ = "0.1.0"
