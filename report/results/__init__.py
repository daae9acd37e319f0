"""Results as people hold them: a few lines to read, a record, a frame, a file by its suffix."""
