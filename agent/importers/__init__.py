"""Readers of other tools' session files: what each tool would send on resume, as a conversation of ours.

One module a family. Each offers `read(source, options) -> Iterator[Conversation]`; `sniff.detect` says which one a file
is for. Readers raise `Unreadable` with one sentence, and count by kind whatever they leave out.
"""
