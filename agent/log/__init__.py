"""The log: how bytes get to disk and never get lost. `agent.session` is the front of it; these are its sections."""
