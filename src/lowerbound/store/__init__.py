"""Files of a run: arrays and JSON, never code, written at once or not at all.

Contract: `write_archive` and `read_archive` of plain records; `Checkpoint` says where and how often
the state of a run is kept, `Keeper` writes it.
"""
